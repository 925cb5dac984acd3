//! A time as part of a file's name.

const DAY: i64 = 86_400;

/// `20261130T235959Z` of seconds since 1970.
pub(super) fn utc(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The Gregorian date of a day since 1970. Counted in eras of 400 years that begin in March, so that
/// the leap day is the last of a year (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        // From `date -u -d @N +%Y%m%dT%H%M%SZ`.
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_798_761_599, "20261231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
            (-1, "19691231T235959Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
