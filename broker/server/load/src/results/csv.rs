//! The messages of a run as a CSV file, in the format of MQTTLoader, another load tool.

use crate::failure::{Failure, Outcome};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The CSV of a run: a line for each message sent, and each copy received.
#[derive(Debug)]
pub struct Csv {
    file: BufWriter<File>,
    path: String,
    run: String,
}

impl Csv {
    /// Creates the file; refuses to overwrite one.
    ///
    /// # Errors
    /// Where it cannot be created.
    pub fn create(path: &str, start_ns: u64) -> Outcome<Self> {
        let refused = |error| Failure::Use(format!("{path}: {error}."));
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(refused)?;
        let letters: Vec<u8> = (0..4)
            .map(|place| b'A' + ((start_ns / 1000) >> (5 * place)) as u8 % 26)
            .collect();
        let mut made = Self {
            file: BufWriter::new(file),
            path: path.to_owned(),
            run: String::from_utf8_lossy(&letters).into_owned(),
        };
        let first = writeln!(made.file, "{},,,", start_ns / 1000);
        made.wrote(first)?;
        Ok(made)
    }

    /// Returns the name that MQTTLoader would give the file, but in UTC.
    pub fn name_in(folder: &str, start_ns: u64) -> String {
        let [year, month, day, hour, minute, second] = calendar(start_ns);
        let name =
            format!("mqttloader_{year}{month:02}{day:02}-{hour:02}{minute:02}{second:02}.csv");
        Path::new(folder).join(name).to_string_lossy().into_owned()
    }

    /// Adds a message that was sent.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn sent(&mut self, publisher: usize, at_ns: u64) -> Outcome<()> {
        let line = writeln!(
            self.file,
            "{},ml-{}-p-{publisher:05},S,",
            at_ns / 1000,
            self.run
        );
        self.wrote(line)
    }

    /// Adds a copy and its latency.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn received(&mut self, subscriber: usize, at_ns: u64, delay_ns: u64) -> Outcome<()> {
        let (at_us, delay_us) = (at_ns / 1000, delay_ns / 1000);
        let line = writeln!(
            self.file,
            "{at_us},ml-{}-s-{subscriber:05},R,{delay_us}",
            self.run
        );
        self.wrote(line)
    }

    /// Flushes the file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn finish(&mut self) -> Outcome<()> {
        let flushed = self.file.flush();
        self.wrote(flushed)
    }

    fn wrote(&self, result: std::io::Result<()>) -> Outcome<()> {
        result.map_err(|error| Failure::Failed(format!("{}: {error}.", self.path)))
    }
}

/// Year, month, day, hour, minute and second of a moment, UTC (the proleptic Gregorian calendar).
fn calendar(at_ns: u64) -> [u64; 6] {
    let (days, second) = (at_ns / 86_400_000_000_000, at_ns / 1_000_000_000 % 86_400);
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year + era * 400 + u64::from(month <= 2);
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    [
        year,
        month,
        day,
        second / 3600,
        second / 60 % 60,
        second % 60,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_is_named_after_its_moment() {
        // GNU date: `date -u -d @1599643916 +%Y%m%d-%H%M%S`.
        let name = Csv::name_in("out", 1_599_643_916_416_823_000);
        assert_eq!(name, "out/mqttloader_20200909-093156.csv");
        let [leap_day, epoch] = [1_709_210_096_000_000_000, 0].map(calendar);
        assert_eq!(leap_day, [2024, 2, 29, 12, 34, 56]);
        assert_eq!(epoch, [1970, 1, 1, 0, 0, 0]);
    }
}
