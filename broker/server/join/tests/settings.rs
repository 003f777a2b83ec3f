//! The configuration file: its meaning, and the errors in a wrong one.

#![allow(clippy::unwrap_used)]

use mqtick_join::settings::{Settings, url};

const EXAMPLE: &str = include_str!("../../join.toml.example");

fn refused(text: &str) -> String {
    let settings: Result<Settings, _> = format!("broker.url = \"mqtt://b\"\n{text}").parse();
    match settings {
        Err(error) => error.to_string(),
        Ok(settings) => settings.check().unwrap_err().to_string(),
    }
}

#[test]
fn the_example_is_the_defaults_and_a_broker() {
    let mut settings: Settings = EXAMPLE.parse().unwrap();
    assert!(settings.check().is_ok() && settings.warnings().is_empty());
    settings.broker.url = None;
    assert_eq!(settings, Settings::default());
    assert_eq!("".parse::<Settings>().unwrap(), Settings::default());
    let missing = settings.check().unwrap_err().to_string();
    assert_eq!(
        missing,
        "broker.url: is missing: set it to the address of the broker (--broker)"
    );
}

#[test]
fn the_example_with_everything_switched_on_is_right_too() {
    let on = |line: &str| {
        let setting = line.strip_prefix("# ").filter(|rest| {
            let name = rest.split([' ', '=']).next().unwrap();
            rest.starts_with('[')
                || rest.contains(" = ") && name.chars().all(|c| c.is_lowercase() || c == '_')
        });
        setting.unwrap_or(line).to_string()
    };
    let all: Vec<String> = EXAMPLE
        .lines()
        .map(on)
        .filter(|line| !line.starts_with("path = ") && !line.starts_with("systemd"))
        .map(|line| line.replace("identity_as_username = false", ""))
        .collect();
    let settings: Settings = all.join("\n").parse().unwrap();
    settings.check().unwrap();
    assert_eq!(settings.name, "site-a");
    assert!(settings.state.is_some() && settings.metrics.address.is_some());
    assert!(settings.neighbours.secret_file.is_some() && settings.neighbours.key.is_some());
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    for (text, said) in [
        ("nam = \"a\"", "unknown field `nam`"),
        ("name = \"a b\"", "name: is \"a b\"; 1 to 64 letters"),
        ("algorithm = \"both\"", "unknown variant `both`"),
        ("reliability = \"some\"", "unknown variant `some`"),
        (
            "absence_s = 86401",
            "absence_s: is 86401; 0 to 86400 can be used",
        ),
        (
            "broker.connections = 17",
            "broker.connections: is 17; 1 to 16 can be used",
        ),
        (
            "neighbours.urls = [\"http://x\"]",
            "is no address of a broker",
        ),
        (
            "time_filters = [\"t/#\", \"t/#/0\"]",
            "time_filters: has \"t/#/0\", which is no topic filter",
        ),
        (
            "neighbours.key = \"k\"",
            "certificate and key belong together",
        ),
        (
            "neighbours.certificate_names = [\"a\"]",
            "needs a [[listener]] with tls.client_ca",
        ),
        ("limits.queue = 1", "limits.queue: is 1; 1024 to"),
        ("limits.stop_s = 3601", "limits.stop_s: is 3601; 0 to 3600"),
        ("state = \"\"", "state: is empty"),
        ("listener = []", "listener: is empty"),
    ] {
        let found = refused(text);
        assert!(found.contains(said), "{text}: {found}");
    }
}

#[test]
fn whoever_connects_may_be_a_neighbour_only_where_nobody_else_can_reach_the_node() {
    let read = |text: &str| text.parse::<Settings>().unwrap();
    assert!(read("").trusts_anybody());
    assert!(!read("neighbours.secret_file = \"s\"").trusts_anybody());
    let open = read("[[listener]]\naddress = \"0.0.0.0:1883\"");
    assert!(!open.trusts_anybody());
    assert!(
        open.warnings()
            .concat()
            .contains("no other node can connect to this one")
    );
    assert!(
        open.warnings()
            .concat()
            .contains("access.acl_file: is not set")
    );
    let far =
        read("neighbours = { secret_file = \"s\", urls = [\"mqtt://far\", \"mqtts://far\"] }");
    assert_eq!(far.warnings().len(), 1);
}

#[test]
fn an_address_is_a_host_alone_or_a_url() {
    assert_eq!(url("b").unwrap().to_string(), "mqtt://b:1883");
    assert_eq!(url("[::1]:7").unwrap().to_string(), "mqtt://[::1]:7");
    assert_eq!(url("mqtts://b").unwrap().to_string(), "mqtts://b:8883");
    assert!(url("b:x").is_err() && url("").is_err());
}
