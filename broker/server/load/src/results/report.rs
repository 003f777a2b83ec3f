//! Figures with their spread over the repeats, as a table or as JSON.

use crate::system::clocks::now_ns;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fmt::Write;

/// Returns a quantile of sorted values (nearest rank); None if there are none.
pub fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Minimum, median and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The median; of an even number, the mean of the middle two.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of some values; None if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        Some(Self {
            min,
            median: f64::midpoint(lower, upper),
            max,
        })
    }
}

/// The name of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// In JSON.
    pub key: &'static str,
    /// In tables.
    pub text: &'static str,
    /// Its unit.
    pub unit: &'static str,
}

/// Names of figures: `CONSTANT "key" "text" "unit";` each.
macro_rules! names {
    ($($(#[$doc:meta])* $vis:vis $constant:ident $key:literal $text:literal $unit:literal;)*) => {
        $(
            $(#[$doc])*
            $vis const $constant: $crate::results::report::Name =
                $crate::results::report::Name { key: $key, text: $text, unit: $unit };
        )*
    };
}
pub(crate) use names;

/// One quantity of one contestant, with a value for each repeat.
#[derive(Debug, Clone)]
pub struct Row {
    /// The quantity.
    pub name: Name,
    /// `broker`, `floor`, `ratio`, `mqtick-load`, or a machine.
    pub who: Cow<'static, str>,
    /// In the order of the repeats.
    pub values: Vec<f64>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    command: String,
    parameters: Vec<(&'static str, String)>,
    rows: Vec<Row>,
    lists: Vec<(String, Vec<f64>)>,
    notes: Vec<String>,
}

impl Report {
    /// Begins a report of one command.
    pub fn new(command: &str, parameters: Vec<(&'static str, String)>) -> Self {
        Self {
            command: command.to_owned(),
            parameters,
            ..Self::default()
        }
    }

    /// Replaces the parameters.
    pub fn with(&mut self, parameters: Vec<(&'static str, String)>) {
        self.parameters = parameters;
    }

    /// Adds the value of one repeat.
    pub fn add(&mut self, name: Name, who: impl Into<Cow<'static, str>>, value: f64) {
        let who = who.into();
        match self
            .rows
            .iter_mut()
            .find(|row| row.name == name && row.who == who)
        {
            Some(row) => row.values.push(value),
            None => self.rows.push(Row {
                name,
                who,
                values: vec![value],
            }),
        }
    }

    /// Adds values that only the JSON has.
    pub fn list(&mut self, name: &str, values: Vec<f64>) {
        match self.lists.iter_mut().find(|(other, _)| other == name) {
            Some((_, all)) => all.extend(values),
            None => self.lists.push((name.to_owned(), values)),
        }
    }

    /// Adds a sentence, unless it is there already.
    pub fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Whether there are no figures.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds broker / floor for each repeat of both.
    pub fn compare(&mut self, names: &[Name]) {
        for name in names {
            let of = |who| {
                self.rows
                    .iter()
                    .find(|row| row.name == *name && row.who == who)
            };
            let (Some(broker), Some(floor)) = (of("broker"), of("floor")) else {
                continue;
            };
            let pairs = broker.values.iter().zip(&floor.values);
            let ratios: Vec<f64> = pairs
                .filter(|(_, floor)| **floor > 0.0)
                .map(|(broker, floor)| broker / floor)
                .collect();
            let name = Name {
                unit: "broker / floor",
                ..*name
            };
            ratios
                .into_iter()
                .for_each(|ratio| self.add(name, "ratio", ratio));
        }
    }

    /// Returns the table.
    pub fn text(&self) -> String {
        let head = ["quantity", "unit", "who", "n", "min", "median", "max"].map(str::to_owned);
        let mut lines = vec![head];
        for row in &self.rows {
            let Some(spread) = Spread::of(&row.values) else {
                continue;
            };
            let count = row.values.len().to_string();
            let [min, median, max] = [spread.min, spread.median, spread.max].map(short);
            let words = [row.name.text, row.name.unit, &row.who].map(str::to_owned);
            let [quantity, unit, who] = words;
            lines.push([quantity, unit, who, count, min, median, max]);
        }
        let mut widths = [0; 7];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        let settings: Vec<String> = self
            .parameters
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        let mut text = format!("{}: {}\n", self.command, settings.join(", "));
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let _ = if column < 3 {
                    write!(text, "{gap}{cell:<width$}")
                } else {
                    write!(text, "{gap}{cell:>width$}")
                };
            }
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// Returns the figures and lists as a JSON object.
    pub fn json(&self, complete: bool) -> Value {
        let lists = self.lists.iter();
        let lists: Map<_, _> = lists
            .map(|(name, values)| (name.clone(), values.iter().map(rounded).collect()))
            .collect();
        let parameters = self.parameters.iter();
        let parameters: Map<_, _> = parameters
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        json!({
            "program": "mqtick-load",
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.command,
            "complete": complete,
            "ended_unix_s": now_ns() / 1_000_000_000,
            "parameters": parameters,
            "rows": self.rows.iter().map(row_json).collect::<Vec<_>>(),
            "lists": lists,
            "notes": self.notes,
        })
    }
}

fn row_json(row: &Row) -> Value {
    let spread = Spread::of(&row.values);
    json!({
        "key": row.name.key,
        "quantity": row.name.text,
        "unit": row.name.unit,
        "who": row.who,
        "min": spread.map(|one| rounded(&one.min)),
        "median": spread.map(|one| rounded(&one.median)),
        "max": spread.map(|one| rounded(&one.max)),
        "repeats": row.values.iter().map(rounded).collect::<Vec<_>>(),
    })
}

/// Rounds to four decimals; JSON turns infinity and NaN to null.
fn rounded(value: &f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

/// Four significant digits, or all of a large number.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 1000.0 || large == 0.0 => 0,
        large if large >= 100.0 => 1,
        large if large >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if digits == 0 {
        text
    } else {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = Name {
        key: "k",
        text: "what \"it\" is",
        unit: "us",
    };

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let sorted = [10, 20, 30, 40];
        assert_eq!(
            [0.0, 0.25, 0.5, 0.51, 0.99, 1.0].map(|share| quantile(&sorted, share)),
            [10, 10, 20, 30, 40, 40].map(Some)
        );
        assert_eq!(quantile::<u64>(&[], 0.5), None);
    }

    #[test]
    fn the_spread_is_that_of_the_repeats() {
        assert_eq!(
            Spread::of(&[3.0, 1.0, 2.0]),
            Some(Spread {
                min: 1.0,
                median: 2.0,
                max: 3.0
            })
        );
        assert_eq!(
            Spread::of(&[4.0, 1.0]).map(|spread| spread.median),
            Some(2.5)
        );
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_ratio_is_taken_repeat_by_repeat_and_not_where_the_floor_is_nothing() {
        let mut report = Report::new("pairs", Vec::new());
        for (broker, floor) in [(4.0, 2.0), (9.0, 3.0), (5.0, 0.0)] {
            report.add(NAME, "broker", broker);
            report.add(NAME, "floor", floor);
        }
        report.compare(&[NAME]);
        let ratios = report
            .rows
            .last()
            .map(|row| (row.who.clone(), row.values.clone()));
        assert_eq!(ratios, Some(("ratio".into(), vec![2.0, 3.0])));
    }

    #[test]
    fn the_table_and_the_json_hold_each_value() {
        let mut report = Report::new("pairs", vec![("pairs", "2".to_owned())]);
        report.add(NAME, "broker", 1234.5);
        report.add(NAME, "broker", 0.25);
        report.note("a\nb".to_owned());
        report.list("places", vec![0.5, f64::NAN]);
        let text = report.text();
        assert!(text.starts_with("pairs: pairs 2\n"), "{text}");
        assert!(
            text.contains("what \"it\" is  us    broker  2  0.25   617.4  1234"),
            "{text}"
        );
        let json = report.json(false);
        assert_eq!(json["complete"], false);
        assert_eq!(json["rows"][0]["quantity"], "what \"it\" is");
        assert_eq!(json["rows"][0]["median"], 617.375);
        assert_eq!(json["rows"][0]["repeats"], json!([1234.5, 0.25]));
        assert_eq!(json["notes"], json!(["a\nb"]));
        assert_eq!(json["lists"]["places"], json!([0.5, null]));
        assert_eq!(json["parameters"]["pairs"], "2");
    }
}
