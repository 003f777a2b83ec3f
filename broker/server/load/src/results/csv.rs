//! The messages of a run as a CSV file, in the format of MQTTLoader, another load tool.

use mqtick_net::failure::{Failure, Outcome};
use std::fs::File;
use std::io::{BufWriter, Write};

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

    /// Returns a name for the file: the seconds since 1970 when the run began.
    pub fn name_in(folder: &str, start_ns: u64) -> String {
        format!("{folder}/mqttloader_{}.csv", start_ns / 1_000_000_000)
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
