//! The result of `limit` as a page: one HTML file that loads nothing.

use hdrhistogram::Histogram;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;

use crate::format::{date, escaped, thousands};
use crate::report::Report;
use crate::{Failure, Outcome};

/// A trial of the search.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Messages a second, as scheduled.
    pub ingress: f64,
    /// Copies that came over copies owed.
    pub ratio: f64,
    /// Whether it was under the limit.
    pub holds: bool,
}

/// Latency and skew at a share of the limit.
#[derive(Debug)]
pub struct Level {
    /// Its name.
    pub name: &'static str,
    /// From leaving to each copy, ns.
    pub wire: Histogram<u64>,
    /// From a message's first copy to its last, ns.
    pub skew: Histogram<u64>,
}

/// The contents of a page.
#[derive(Debug)]
pub struct Page<'a> {
    /// The broker's address.
    pub broker: &'a str,
    /// When it was made, in ns since the epoch.
    pub at_ns: u64,
    /// The limit: messages a second.
    pub limit: f64,
    /// The lowest that it may be.
    pub low: f64,
    /// The highest that it may be.
    pub high: f64,
    /// Copies a second at the limit.
    pub egress: f64,
    /// The search.
    pub points: &'a [Point],
    /// What was measured at the limit and below.
    pub levels: &'a [Level],
    /// All figures.
    pub report: &'a Report,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 40.0;
const COLOURS: [&str; 3] = ["#1b6ca8", "#c77700", "#a02040"];
const STYLE: &str = "body{font:16px/1.45 sans-serif;max-width:46em;margin:2em auto;padding:0 1em;\
color:#222}h1{font-size:1.5em}.big{font-size:2em}svg{width:100%;height:auto}pre{overflow-x:auto;\
background:#f5f5f5;padding:1em;font-size:12px}text{font:12px sans-serif;fill:#333}\
.axis{stroke:#888;fill:none}.grid{stroke:#ddd}";

/// Checks that a page can be written, before the search.
///
/// # Errors
/// Where it cannot.
pub fn may_write(path: &str) -> Outcome<()> {
    let was_there = Path::new(path).exists();
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(|error| Failure::Use(format!("{path}: {error}.")))?;
    // A run that ends early leaves no empty file.
    if !was_there {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Writes a page.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(path: &str, page: &Page<'_>) -> Outcome<()> {
    let refused = |error| Failure::Failed(format!("{path}: {error}."));
    std::fs::write(path, html(page)).map_err(refused)
}

/// Returns a page's text.
#[must_use]
pub fn html(page: &Page<'_>) -> String {
    let broker = escaped(page.broker);
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Limit of {broker}\
         </title>\n<style>{STYLE}</style>\n<h1>How much does {broker} carry?</h1>\n\
         <p class=\"big\">{} messages in and {} out a second</p>\n\
         <p>The limit lies between {} and {} messages in. Above it, fewer than 99 % of \
         the copies came as fast as messages were published ({:.1} copies of each). Measured {} by mqtick-load {}.</p>\n\
         <h2>The search</h2>\n{}\n<h2>Latency</h2>\n<p>From the kernel's stamp when a message left \
         to its stamp when each copy came.</p>\n{}\n<h2>Skew</h2>\n<p>From the first copy of a \
         message to its last.</p>\n{}\n<h2>All figures</h2>\n<pre>{}</pre>\n</html>\n",
        thousands(page.limit),
        thousands(page.egress),
        thousands(page.low),
        thousands(page.high),
        page.egress / page.limit,
        date(page.at_ns),
        env!("CARGO_PKG_VERSION"),
        search(page),
        percentiles(page.levels, |level| &level.wire),
        percentiles(page.levels, |level| &level.skew),
        escaped(&page.report.text()),
    )
}

/// A scale from values to a picture's length; logarithmic.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| *value > 0.0) {
            (least, most) = (least.min(value), most.max(value));
        }
        if most <= 0.0 {
            (least, most) = (1.0, 10.0);
        }
        Self {
            least: least / 1.15,
            most: most * 1.15,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share =
            (value.clamp(self.least, self.most) / self.least).ln() / (self.most / self.least).ln();
        self.from + share * (self.to - self.from)
    }

    /// Round numbers, as many as there is room for.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (least, most) = (self.least, self.most);
        let each: &[f64] = match most / least {
            ratio if ratio < 10.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            ratio if ratio < 200.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0, 3.0],
        };
        let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        let all = (low..=high).flat_map(|power| each.iter().map(move |n| n * 10_f64.powi(power)));
        all.filter(move |tick| *tick >= least && *tick <= most)
    }
}

fn open(label: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">\
         <path class=\"axis\" d=\"M{LEFT} 10V{0}H{WIDTH}\"/>",
        HEIGHT - BOTTOM
    )
}

fn search(page: &Page<'_>) -> String {
    let x = Axis::of(
        page.points.iter().map(|one| one.ingress),
        LEFT,
        WIDTH - 10.0,
    );
    let floor = page
        .points
        .iter()
        .map(|one| one.ratio)
        .fold(0.9, f64::min)
        .max(0.0);
    let bottom = HEIGHT - BOTTOM;
    let y = |ratio: f64| bottom - (ratio - floor) / (1.05 - floor) * (bottom - 10.0);
    let mut svg = open("ratio of copies that came, by messages a second");
    let (from, to, middle) = (x.at(page.low), x.at(page.high), x.at(page.limit));
    let _ = write!(
        svg,
        "<rect x=\"{from:.1}\" y=\"10\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#cde3f5\"/>\
         <path stroke=\"#1b6ca8\" d=\"M{middle:.1} 10V{bottom}\"/>",
        to - from,
        bottom - 10.0
    );
    for tick in x.ticks() {
        let at = x.at(tick);
        let _ = write!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            thousands(tick)
        );
    }
    for ratio in [floor, 0.99, 1.0] {
        let at = y(ratio);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{WIDTH}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ratio:.2}</text>",
            LEFT - 6.0,
            at + if ratio == 1.0 { -2.0 } else { 10.0 }
        );
    }
    for point in page.points {
        let (fill, title) = if point.holds {
            ("#1b6ca8", "under the limit")
        } else {
            ("#fff", "above it")
        };
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"#1b6ca8\">\
             <title>{}/s: {:.4}, {title}</title></circle>",
            x.at(point.ingress),
            y(point.ratio.min(1.05)),
            thousands(point.ingress),
            point.ratio
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">messages published a second; full: \
         copies came as fast (at least 0.99), empty: they did not</text></svg>",
        f64::midpoint(LEFT, WIDTH),
        HEIGHT - 6.0
    );
    svg
}

fn percentiles(levels: &[Level], of: impl Fn(&Level) -> &Histogram<u64>) -> String {
    let measured: Vec<&Level> = levels
        .iter()
        .filter(|level| !of(level).is_empty())
        .collect();
    if measured.is_empty() {
        return "<p>Not measured: the scenario has no group of kind latency with more than one \
                subscriber.</p>"
            .to_owned();
    }
    let shares: Vec<f64> = (0..=60)
        .map(|step| 1.0 - 10_f64.powf(-f64::from(step) / 20.0))
        .collect();
    let us = |level: &Level, share: f64| of(level).value_at_quantile(share) as f64 / 1e3;
    let bottom = HEIGHT - BOTTOM;
    let ends = measured
        .iter()
        .flat_map(|level| [us(level, 0.0), us(level, 0.999)]);
    let y = Axis::of(ends, bottom, 30.0);
    let x = |place: usize| LEFT + place as f64 / 60.0 * (WIDTH - LEFT - 10.0);
    let mut svg = open("percentiles");
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{WIDTH}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} us</text>",
            LEFT - 6.0,
            at + 4.0,
            thousands(tick)
        );
    }
    for (name, place) in [("0 %", 0), ("90 %", 20), ("99 %", 40), ("99.9 %", 60)] {
        let anchor = if place == 60 { "end" } else { "middle" };
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{name}</text>",
            x(place),
            bottom + 16.0
        );
    }
    for (number, (level, colour)) in measured.iter().zip(COLOURS).enumerate() {
        let mut line = String::new();
        // Further to the right there is only the largest value.
        let values = of(level).len() as f64;
        let shares = shares
            .iter()
            .take_while(|share| (1.0 - **share) * values >= 1.0);
        for (place, share) in shares.enumerate() {
            let letter = if place == 0 { 'M' } else { 'L' };
            let _ = write!(
                line,
                "{letter}{:.1} {:.1}",
                x(place),
                y.at(us(level, *share))
            );
        }
        let _ = write!(
            svg,
            "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{colour}\">{}, n = {}</text>",
            LEFT + 10.0 + 190.0 * number as f64,
            20.0,
            level.name,
            of(level).len()
        );
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_the_limit_and_executes_nothing() {
        let mut wire = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
        (1..1000).for_each(|us| wire.record(us * 1000).unwrap());
        let skew = wire.clone();
        let page = html(&Page {
            broker: "<script>\"&",
            at_ns: 0,
            limit: 12_345.0,
            low: 11_000.0,
            high: 14_000.0,
            egress: 123_450.0,
            points: &[
                Point {
                    ingress: 10_000.0,
                    ratio: 1.0,
                    holds: true,
                },
                Point {
                    ingress: 20_000.0,
                    ratio: 0.6,
                    holds: false,
                },
            ],
            levels: &[Level {
                name: "at 90 %",
                wire,
                skew,
            }],
            report: &Report::new("limit", Vec::new()),
        });
        assert!(
            page.contains("12,345 messages in and 123,450 out a second<")
                && page.contains("between 11,000 and 14,000 messages in."),
            "{page}"
        );
        assert!(!page.contains("<script") && !page.contains("http") && !page.contains("NaN"));
        assert_eq!(page.matches("<circle").count(), 2);
        assert!(page.contains("at 90 %, n = 999"));
        // Up to 99.87 %: of 999 values, one is larger.
        let curve = page.split("<path d=\"M").nth(1).unwrap();
        let curve = curve.split('"').next().unwrap();
        assert_eq!(curve.matches('L').count(), 59);
    }

    #[test]
    fn a_page_without_latency_says_so() {
        assert!(percentiles(&[], |level| &level.wire).contains("Not measured"));
    }
}
