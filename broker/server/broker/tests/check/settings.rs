//! Reads any octets as a configuration file.

use mqtick_broker::settings::Settings;

/// Fail where something panics, or what is said is not one line of readable length.
pub fn check(octets: &[u8]) {
    match String::from_utf8_lossy(octets).parse::<Settings>() {
        Ok(settings) => {
            settings.check().expect("it was checked");
            assert!((1..=1024).contains(&settings.threads()));
            for warning in settings.warnings() {
                assert!(!warning.contains('\n'), "{warning}");
            }
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.contains('\n') && said.len() < 1000, "{said}");
        }
    }
}
