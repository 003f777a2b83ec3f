//! The two searches for the limit of performance.
//!
//! A trial has a scale, by which all intervals of the load are multiplied, and returns whether the
//! broker was under its limit. A large scale is a light load.

use mqtick_net::failure::{Failure, Outcome};

/// Most doublings or halvings of the interval.
const DOUBLINGS: usize = 24;

/// Steps of the published search between an interval that holds and its half.
const STEPS: usize = 20;

/// 97.5th percentile of Student's distribution, by degrees of freedom from 1.
const STUDENT: [f64; 10] = [
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
];

/// The smallest scale that holds, and the interval in which it lies: with 95 % confidence where
/// trials were repeated, one step of the search where they were not.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The scale.
    pub scale: f64,
    /// The scale of the lowest rate that the limit may have.
    pub lowest: f64,
    /// The scale of the highest rate that it may have.
    pub highest: f64,
    /// The results of the single bisections.
    pub scales: Vec<f64>,
}

/// Doubles the scale from 1 on until it holds, or halves it while it holds. Returns a scale that
/// holds and whose half does not.
///
/// # Errors
/// Where no scale holds, or all do; what a trial returns.
pub fn bracket(mut trial: impl FnMut(f64) -> Outcome<bool>) -> Outcome<f64> {
    let mut scale = 1.0;
    let began = trial(scale)?;
    for _ in 0..DOUBLINGS {
        if began {
            scale /= 2.0;
            if !trial(scale)? {
                return Ok(2.0 * scale);
            }
        } else {
            scale *= 2.0;
            if trial(scale)? {
                return Ok(scale);
            }
        }
    }
    let text = if began {
        "no interval is too short for this broker: the limit is not in reach."
    } else {
        "no interval is long enough for this broker: copies are lost at any rate."
    };
    Err(Failure::Failed(text.to_owned()))
}

/// The published search: doubling, then 20 steps; the smallest step that holds.
///
/// # Errors
/// As [`bracket`].
pub fn published(mut trial: impl FnMut(f64) -> Outcome<bool>) -> Outcome<Limit> {
    let holds = bracket(&mut trial)?;
    let step = holds / 2.0 / STEPS as f64;
    let mut scale = holds;
    for number in 1..STEPS {
        let tried = holds / 2.0 + number as f64 * step;
        if trial(tried)? {
            scale = tried;
            break;
        }
    }
    Ok(Limit {
        scale,
        lowest: scale,
        highest: scale - step,
        scales: vec![scale],
    })
}

/// The fast search: a bisection down to `resolution`, a share of the scale, then `repeats`
/// bisections around its result, whose spread gives the interval. A trial that is disturbed, even
/// in the first bisection, makes the interval wider, not wrong.
///
/// # Errors
/// As [`bracket`].
pub fn fast(
    resolution: f64,
    repeats: usize,
    mut trial: impl FnMut(f64) -> Outcome<bool>,
) -> Outcome<Limit> {
    let holds = bracket(&mut trial)?;
    let first = bisect(holds / 2.0, holds, true, resolution, &mut trial)?;
    let again = || bisect(first / 1.25, first * 1.25, false, resolution, &mut trial);
    let scales = std::iter::repeat_with(again).take(repeats);
    let scales: Vec<f64> = scales.collect::<Outcome<_>>()?;
    // By logarithms: the interval is a ratio, and no rate in it is below 0.
    let count = scales.len() as f64;
    let mean = scales.iter().map(|one| one.ln()).sum::<f64>() / count;
    let squares: f64 = scales.iter().map(|one| (one.ln() - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt();
    let student = STUDENT.get(scales.len() - 2).copied().unwrap_or(2.228);
    let factor = (student * deviation / count.sqrt())
        .hypot(resolution / 2.0)
        .exp();
    Ok(Limit {
        scale: mean.exp(),
        lowest: mean.exp() * factor,
        highest: mean.exp() / factor,
        scales,
    })
}

/// Bisects an interval of scales by ratio, and returns its middle. If its ends are not `sure`, an
/// end that was not replaced is tried as well, and moved if it is on the wrong side.
fn bisect(
    mut fails: f64,
    mut holds: f64,
    sure: bool,
    resolution: f64,
    trial: &mut impl FnMut(f64) -> Outcome<bool>,
) -> Outcome<f64> {
    let (mut has_held, mut has_failed) = (sure, sure);
    for _ in 0..DOUBLINGS {
        while holds / fails > 1.0 + resolution {
            let middle = (fails * holds).sqrt();
            if trial(middle)? {
                (holds, has_held) = (middle, true);
            } else {
                (fails, has_failed) = (middle, true);
            }
        }
        if !has_held {
            has_held = trial(holds)?;
            if !has_held {
                (fails, holds) = (holds, 2.0 * holds);
            }
        } else if !has_failed {
            has_failed = !trial(fails)?;
            if !has_failed {
                (fails, holds) = (fails / 2.0, fails);
            }
        } else {
            return Ok((fails * holds).sqrt());
        }
    }
    let text = "the limit wavers by a factor of more than a million: it is not known.";
    Err(Failure::Failed(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Limit {
        fn covers(&self, scale: f64) -> bool {
            (self.highest..=self.lowest).contains(&scale)
        }
    }

    /// A broker that holds from a scale on.
    fn broker(limit: f64) -> impl FnMut(f64) -> Outcome<bool> {
        move |scale| Ok(scale >= limit)
    }

    #[test]
    fn the_published_search_is_at_most_five_percent_off_and_says_so() {
        for limit in [0.013, 0.49, 0.51, 0.76, 1.0, 1.01, 3.99, 77.7] {
            let found = published(broker(limit)).unwrap();
            let off = found.scale / limit - 1.0;
            assert!((-1e-9..=0.0501).contains(&off), "{limit}: {off}");
            // The rate that was found held; the true one may be higher, by a step at most.
            let scales = found.highest * (1.0 - 1e-9)..=found.scale;
            assert!(
                scales.contains(&limit) && found.lowest == found.scale,
                "{limit}: {found:?}"
            );
        }
    }

    #[test]
    fn the_faster_search_covers_the_limit_with_fewer_trials() {
        for limit in [0.013, 0.51, 1.0, 3.99, 77.7] {
            let mut trials = 0;
            let found = fast(0.02, 3, |scale| {
                trials += 1;
                Ok(scale >= limit)
            })
            .unwrap();
            let off = (found.scale / limit - 1.0).abs();
            assert!(found.covers(limit) && off < 0.011, "{limit}: {found:?}");
            assert!(trials < 30, "{limit}: {trials}");
        }
    }

    #[test]
    fn a_broker_that_wavers_is_known_less_well() {
        // Its limit jumps from trial to trial; a fixed pattern, so that the test never does.
        let mut number = 0_u64;
        let wavering = |scale: f64| {
            number += 1;
            let noise =
                (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1 << 24) as f64;
            Ok(scale >= 0.9 + 0.2 * noise)
        };
        let found = fast(0.02, 5, wavering).unwrap();
        assert!(found.lowest > 1.02 * found.scale, "{found:?}");
        assert!((found.scale - 1.0).abs() < 0.2, "{found:?}");
        // Where the repeats have nothing in common, the rate is above 0 all the same.
        let mut number = 0;
        let found = fast(0.02, 2, |scale| {
            number += 1;
            Ok(scale >= if number < 14 { 1.0 } else { 8.0 })
        });
        let found = found.unwrap();
        assert!(found.lowest > 2.0 * found.scale, "{found:?}");
        assert!(found.lowest.is_finite() && found.highest > 0.0, "{found:?}");
    }

    #[test]
    fn the_stated_interval_holds_the_limit_nineteen_times_of_twenty() {
        // A splitmix64: the same wavering brokers each time.
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 40) as f64 / (1 << 24) as f64
        };
        for width in [0.0, 0.05, 0.2] {
            let brokers = 1000;
            let mut held = 0;
            for _ in 0..brokers {
                // In half of the trials it carries this scale.
                let limit = 1.0 + random();
                let found = fast(0.02, 5, |scale| {
                    Ok(scale >= limit * (1.0 + width * (random() - 0.5)))
                });
                held += usize::from(found.unwrap().covers(limit));
            }
            let share = held as f64 / brokers as f64;
            assert!(share >= 0.94, "wavering by {width}: {share}");
        }
    }

    #[test]
    fn trials_that_something_disturbs_make_the_limit_less_sure_and_not_wrong() {
        for limit in [0.3, 1.0, 1.4] {
            for disturbed in 0..20 {
                for count in 1..6 {
                    let mut number = 0;
                    let found = fast(0.02, 3, |scale| {
                        number += 1;
                        let is_disturbed = (disturbed..disturbed + count).contains(&number);
                        Ok(scale >= limit && !is_disturbed)
                    });
                    let found = found.unwrap();
                    assert!(
                        found.covers(limit),
                        "{limit}, {count} from {disturbed}: {found:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_broker_without_a_limit_in_reach_is_told() {
        for (answer, text) in [(true, "not in reach"), (false, "lost at any rate")] {
            let error = published(|_| Ok(answer)).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
            assert!(fast(0.02, 3, |_| Ok(answer)).is_err());
        }
    }
}
