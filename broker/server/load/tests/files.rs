//! Files that somebody else wrote: whatever is in them, an answer in words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mqtick_load::settings::mqttloader;
use mqtick_load::settings::scenario::{PUBLISHED, Scenario};
use mqtick_net::failure::Failure;
use proptest::prelude::*;

/// Lines of a configuration with values that nobody would write.
fn line() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "broker",
        "broker_port",
        "mqtt_version",
        "num_publishers",
        "payload",
        "interval",
        "topic",
        "exec_time",
        "ramp_up",
        "tls",
        "x",
    ]);
    (key, "[ -~]{0,12}").prop_map(|(key, value)| format!("{key}={value}"))
}

proptest! {
    #[test]
    fn any_text_is_a_scenario_or_is_refused_in_words(text in "\\PC{0,200}") {
        if let Err(failure) = Scenario::parse(&text) {
            let is_use = matches!(&failure, Failure::Use(why) if !why.is_empty());
            prop_assert!(is_use);
        }
    }

    #[test]
    fn a_scenario_with_an_octet_changed_is_one_that_can_be_carried_out_or_is_refused(
        place in 0..PUBLISHED.len(), octet in b' '..b'~'
    ) {
        let mut text = PUBLISHED.as_bytes().to_vec();
        text[place] = octet;
        if let Ok(found) = Scenario::parse(std::str::from_utf8(&text).unwrap()) {
            prop_assert!(found.ingress(1.0).is_finite() && found.sp().is_finite());
            prop_assert!(found.clients() > 0 && found.seconds > found.ramp_up_s);
        }
    }

    #[test]
    fn any_configuration_of_mqttloader_is_understood_or_refused_with_its_line(
        lines in prop::collection::vec(line(), 0..12)
    ) {
        match mqttloader::parse(&lines.join("\n")) {
            Ok(found) => prop_assert!(found.scenario.check().is_ok() && !found.broker.is_empty()),
            Err(Failure::Use(why)) => prop_assert!(!why.is_empty()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
