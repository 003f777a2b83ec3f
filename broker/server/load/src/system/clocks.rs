//! The system's clock: its error during a run, and how that bounds a latency between machines.
//!
//! Errors are *clock minus UTC*, in ns. A reading of `mqtick-client now` at the beginning and one
//! at the end give one interval each. Between them the error follows a straight line, except for
//! steering, which shows as CLOCK_REALTIME against CLOCK_MONOTONIC_RAW, and for changes of the
//! crystal's rate, which are assumed to be at most [`WANDER`].

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Largest error of a crystal's rate (the range of adjtimex).
const CRYSTAL: f64 = 500e-6;
/// Largest change of that rate during a run.
const WANDER: f64 = 1e-6;
/// A larger deviation in a run is a step, not steering; ns.
const STEP_NS: i64 = 10_000_000;
/// Readings for one look; the quickest counts.
const READS: usize = 5;

fn read(clock: ClockId) -> i64 {
    clock_gettime(clock).map_or(0, |now| now.num_nanoseconds())
}

/// Returns CLOCK_REALTIME in ns: the clock of the kernel's stamps.
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME).cast_unsigned()
}

/// Returns CLOCK_REALTIME minus CLOCK_MONOTONIC in ns; a sudden change of it is a step.
pub fn ahead_ns() -> i64 {
    read(ClockId::CLOCK_REALTIME) - read(ClockId::CLOCK_MONOTONIC)
}

/// The bounds of a duration or an error, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// The least.
    pub low: i64,
    /// The greatest.
    pub high: i64,
}

impl Interval {
    /// Exactly zero: the difference of a clock from itself.
    pub const NONE: Self = Self { low: 0, high: 0 };

    /// Returns what to add to *stamp there minus stamp here* to get the true duration.
    pub fn correction(here: Self, there: Self) -> Self {
        Self {
            low: here.low.saturating_sub(there.high),
            high: here.high.saturating_sub(there.low),
        }
    }
}

/// A reading of CLOCK_REALTIME against CLOCK_MONOTONIC_RAW, which is not steered.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// CLOCK_MONOTONIC_RAW.
    pub raw_ns: i64,
    /// CLOCK_REALTIME minus that.
    pub ahead_ns: i64,
    /// How uncertain the difference is: half the time that the reading took.
    pub within_ns: i64,
}

impl Look {
    /// Reads the clocks.
    pub fn take() -> Self {
        let once = |_| {
            let before = read(ClockId::CLOCK_MONOTONIC_RAW);
            let clock = read(ClockId::CLOCK_REALTIME);
            let within = (read(ClockId::CLOCK_MONOTONIC_RAW) - before) / 2 + 1;
            let raw_ns = before + within;
            Self {
                raw_ns,
                ahead_ns: clock - raw_ns,
                within_ns: within,
            }
        };
        let all = (1..READS).map(once);
        all.fold(once(0), |best, one| {
            if one.within_ns < best.within_ns {
                one
            } else {
                best
            }
        })
    }
}

/// The answer of `mqtick-client now --json`.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Reading {
    earliest_ns: i64,
    latest_ns: i64,
    clock_ns: i64,
}

impl Reading {
    /// Reads the answer.
    ///
    /// # Errors
    /// Where it is no interval.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found: Self = serde_json::from_str(text.trim()).map_err(|error| {
            format!("its answer is not that of mqtick-client now --json: {error}")
        })?;
        let times = [found.earliest_ns, found.latest_ns, found.clock_ns];
        let is_time = times.iter().all(|one| (0..i64::MAX / 2).contains(one));
        if !is_time || found.earliest_ns > found.latest_ns {
            return Err("its answer is not an interval of time".to_owned());
        }
        Ok(found)
    }

    fn error(self) -> Interval {
        Interval {
            low: self.clock_ns - self.latest_ns,
            high: self.clock_ns - self.earliest_ns,
        }
    }
}

/// Returns the clock's deviation from a straight line between the first and the last look, in ns.
///
/// # Errors
/// Where it was stepped.
pub fn strayed(looks: &[Look]) -> Result<i64, String> {
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
        return Ok(0);
    };
    let long = (last.raw_ns - first.raw_ns).max(1) as f64;
    let rate = (last.ahead_ns - first.ahead_ns) as f64 / long;
    let (mut least, mut most) = (0, 0);
    for one in looks {
        let line = first.ahead_ns + (rate * (one.raw_ns - first.raw_ns) as f64) as i64;
        least = least.min(one.ahead_ns - line - one.within_ns - 1);
        most = most.max(one.ahead_ns - line + one.within_ns + 1);
    }
    let strayed = most - least;
    if strayed > STEP_NS {
        let ms = (strayed + 500_000) / 1_000_000;
        return Err(format!("its clock was stepped by {ms} ms during the run"));
    }
    Ok(strayed)
}

/// Returns the bounds of the clock's error between two readings.
///
/// # Errors
/// Where it was stepped, or the readings contradict each other.
pub fn error_of(from: Reading, to: Reading, looks: &[Look]) -> Result<Interval, String> {
    let strayed = strayed(looks)?;
    let ends = looks.first().zip(looks.last());
    let (long, steered) = ends.map_or((0, 0), |(first, last)| {
        (last.raw_ns - first.raw_ns, last.ahead_ns - first.ahead_ns)
    });
    let (one, other) = (from.error(), to.error());
    let gap = (other.low - one.high - steered).max(steered + one.low - other.high);
    if gap > (CRYSTAL * long as f64) as i64 + strayed {
        return Err(format!(
            "the interval of its clock moved by {} us in {:.1} s beyond what was steered, more than a \
             crystal can: one of the two answers is wrong",
            gap / 1000,
            long as f64 / 1e9
        ));
    }
    let margin = strayed + (WANDER * long as f64 / 4.0) as i64 + 1;
    Ok(Interval {
        low: one.low.min(other.low) - margin,
        high: one.high.max(other.high) + margin,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reading(error: i64, below: i64, above: i64) -> Reading {
        let clock_ns = 1_700_000_000_000_000_000;
        let utc = clock_ns - error;
        Reading {
            earliest_ns: utc - below,
            latest_ns: utc + above,
            clock_ns,
        }
    }

    /// Twenty seconds of a crystal that is off and wanders, and of a clock that is steered: looks
    /// each 100 ms, and the true error at each.
    fn history(begin: i64, ppb: i64, wander: &[i64], steer: &[i64]) -> (Vec<Look>, Vec<i64>) {
        let (mut looks, mut errors) = (Vec::new(), Vec::new());
        let (mut ahead, mut crystal) = (77_000_000, -(77_000_000 - begin));
        for step in 0..200 {
            looks.push(Look {
                raw_ns: step as i64 * 100_000_000,
                ahead_ns: ahead,
                within_ns: 1,
            });
            errors.push(ahead + crystal);
            ahead += steer[step % steer.len()];
            // 1 ppb for 100 ms is a tenth of a ns.
            crystal += (ppb + wander[step * wander.len() / 200]) / 10;
        }
        (looks, errors)
    }

    proptest! {
        #[test]
        fn the_true_latency_is_always_inside(
            here in (-1_000_000_i64..1_000_000, -400_000_i64..400_000),
            there in (-1_000_000_i64..1_000_000, -400_000_i64..400_000),
            wander in prop::collection::vec(-499_i64..=499, 1..20),
            steer in prop::collection::vec(-40_000_i64..40_000, 1..300),
            margins in prop::collection::vec(0_i64..500_000, 8),
            latency in 0_i64..2_000_000,
            (left, came) in (0_usize..200, 0_usize..200),
        ) {
            let mut ends = Vec::new();
            for ((begin, ppb), margins) in [here, there].into_iter().zip(margins.chunks(4)) {
                let (looks, errors) = history(begin, ppb, &wander, &steer);
                let from = reading(errors[0], margins[0], margins[1]);
                let to = reading(errors[199], margins[2], margins[3]);
                let bound = error_of(from, to, &looks).unwrap();
                for error in &errors {
                    prop_assert!(bound.low <= *error && *error <= bound.high);
                }
                ends.push((bound, errors));
            }
            // Two stamps of one message, by two wrong clocks.
            let sent = 5_000_000_000 + ends[0].1[left];
            let got = 5_000_000_000 + latency + ends[1].1[came];
            let correction = Interval::correction(ends[0].0, ends[1].0);
            let measured = got - sent;
            prop_assert!(measured + correction.low <= latency);
            prop_assert!(latency <= measured + correction.high);
        }
    }

    #[test]
    fn a_clock_that_is_steered_steadily_costs_next_to_nothing() {
        // 50 ppm of steering against a crystal that is 50 ppm slow: the error stays.
        let (looks, errors) = history(3_000, -50_000, &[0], &[5_000]);
        let bound = error_of(
            reading(errors[0], 10_000, 10_000),
            reading(errors[199], 10_000, 10_000),
            &looks,
        );
        let bound = bound.unwrap();
        assert!(bound.high - bound.low < 31_000, "{bound:?}");
        assert!(bound.low <= 3_000 && 3_000 <= bound.high);
    }

    #[test]
    fn a_step_is_told_and_so_is_an_interval_that_moves_too_far() {
        let (mut looks, _) = history(0, 0, &[0], &[0]);
        let quiet = |error| reading(error, 1_000, 1_000);
        assert!(error_of(quiet(0), quiet(9_000_000), &looks).is_ok());
        let told = error_of(quiet(0), quiet(-12_000_000), &looks).unwrap_err();
        assert!(
            told.contains("moved by 11998 us in 19.9 s beyond"),
            "{told}"
        );
        looks
            .iter_mut()
            .skip(90)
            .for_each(|one| one.ahead_ns += 50_000_000);
        let told = error_of(quiet(0), quiet(50_000_000), &looks).unwrap_err();
        assert!(told.contains("stepped by 50 ms"), "{told}");
    }

    #[test]
    fn an_answer_that_is_no_interval_is_refused() {
        let good = r#"{"earliest_ns": 5, "latest_ns": 9, "estimate_ns": 7, "clock_ns": 8}"#;
        assert_eq!(
            Reading::parse(good).unwrap().error(),
            Interval { low: -1, high: 3 }
        );
        for bad in [
            "",
            "12",
            "{}",
            "{\"earliest_ns\": \"5\"}",
            r#"{"earliest_ns": 9, "latest_ns": 5, "clock_ns": 8}"#,
            r#"{"earliest_ns": -9, "latest_ns": 5, "clock_ns": 8}"#,
            r#"{"earliest_ns": 1, "latest_ns": 9223372036854775807, "clock_ns": 8}"#,
            r#"{"earliest_ns": 1, "latest_ns": 1e99, "clock_ns": 8}"#,
        ] {
            assert!(Reading::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_look_reads_both_clocks() {
        let (one, other) = (Look::take(), Look::take());
        assert!(other.raw_ns > one.raw_ns && one.within_ns > 0);
        assert!(strayed(&[one, other]).is_ok());
    }
}
