//! Numbers, moments and names as a page shows them.

pub(crate) fn thousands(value: f64) -> String {
    if value < 10.0 {
        return format!("{value}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A moment as date and time, UTC.
pub(crate) fn date(at_ns: u64) -> String {
    let [year, month, day, hour, minute, _] = calendar(at_ns);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Year, month, day, hour, minute and second of a moment, UTC (the proleptic Gregorian calendar).
pub(crate) fn calendar(at_ns: u64) -> [u64; 6] {
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
    fn dates_are_those_of_the_calendar() {
        // GNU date: `date -u -d @1709210096`.
        assert_eq!(date(1_709_210_096_000_000_000), "2024-02-29 12:34 UTC");
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
    }
}
