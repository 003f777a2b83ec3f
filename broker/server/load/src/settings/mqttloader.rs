//! The configuration of MQTTLoader, another load tool.

use mqtick_packet::Version;

use crate::protocol::tls::Pem;
use crate::settings::file::read;
use crate::settings::scenario::{Group, Kind, Scenario};
use mqtick_net::failure::{Failure, Outcome};

/// A configuration.
#[derive(Debug)]
pub struct Configuration {
    /// The broker's address.
    pub broker: String,
    /// The version of MQTT.
    pub version: Version,
    /// Publishers and subscribers.
    pub scenario: Scenario,
    /// How long a subscriber waits for the next message, in s.
    pub patience_s: f64,
    /// Name and password.
    pub login: Option<(String, Vec<u8>)>,
    /// Files for TLS: authorities, our key, our certificates.
    pub tls: [Option<String>; 3],
    /// The folder for a CSV file, if one is wanted.
    pub output: Option<String>,
    /// Remarks on keys that are understood but not followed.
    pub notes: Vec<String>,
}

impl Configuration {
    /// Reads the files for TLS.
    ///
    /// # Errors
    /// [`Failure::Use`], with the file that cannot be read.
    pub fn pem(&self) -> Outcome<Pem> {
        let all = |files: &Option<String>| -> Outcome<Option<String>> {
            let Some(files) = files else { return Ok(None) };
            files.split(';').map(read).collect::<Outcome<_>>().map(Some)
        };
        let [ca, key, certificate] = &self.tls;
        Ok(Pem {
            ca: all(ca)?,
            certificate: all(certificate)?,
            key: all(key)?,
        })
    }
}

/// Reads the text of a configuration: `key = value`, a line each; `#` begins a comment.
///
/// # Errors
/// [`Failure::Use`], with the line and what is wrong.
pub fn parse(text: &str) -> Outcome<Configuration> {
    let mut made = Configuration {
        broker: String::new(),
        version: Version::V5,
        scenario: Scenario {
            seconds: 60.0,
            ramp_up_s: 0.0,
            ramp_down_s: 0.0,
            group: Vec::new(),
            ..Scenario::default()
        },
        patience_s: 5.0,
        login: None,
        tls: [None, None, None],
        output: None,
        notes: Vec::new(),
    };
    let mut group = Group {
        name: "ml".to_owned(),
        kind: Kind::Latency,
        payload: 20,
        interval_us: 0.0,
        messages: Some(100),
        topic: "mqttloader-test-topic".to_owned(),
        ..Group::default()
    };
    let (mut host, mut port, mut is_tls) = (String::new(), None, false);
    let (mut user, mut password) = (None, None);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let at = |why: &str| Failure::Use(format!("line {}: {why}", number + 1));
        let (key, value) = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()))
            .ok_or_else(|| at("no key = value."))?;
        let count = |least: u64, most: u64| match value.parse::<u64>() {
            Ok(found) if (least..=most).contains(&found) => Ok(found),
            _ => Err(at(&format!(
                "{key} {value}: give a number from {least} to {most}."
            ))),
        };
        let truth = || match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(at(&format!("{key} {value}: give true or false."))),
        };
        if value.is_empty() {
            continue;
        }
        match key {
            "broker" => value.clone_into(&mut host),
            "broker_port" => port = Some(count(1, 65_535)?),
            "mqtt_version" if count(3, 5)? == 4 => return Err(at("mqtt_version 4: give 3 or 5.")),
            "mqtt_version" => {
                made.version = if value == "3" {
                    Version::V3
                } else {
                    Version::V5
                }
            }
            "num_publishers" => group.publishers = count(1, 100_000)? as usize,
            "num_subscribers" => group.subscribers = count(0, 100_000)? as usize,
            "qos_publisher" => group.qos = count(0, 2)? as u8,
            "qos_subscriber" => group.subscriber_qos = Some(count(0, 2)? as u8),
            "shared_subscription" => group.shared = truth()?,
            "retain" => group.retain = truth()?,
            "topic" => value.clone_into(&mut group.topic),
            "payload" => group.payload = count(8, 1 << 20)? as usize,
            "num_messages" => group.messages = Some(count(1, u64::from(u32::MAX))?),
            "ramp_up" => made.scenario.ramp_up_s = count(0, 3600)? as f64,
            "ramp_down" => made.scenario.ramp_down_s = count(0, 3600)? as f64,
            "interval" => group.interval_us = count(0, 3_600_000_000)? as f64,
            "subscriber_timeout" => made.patience_s = count(1, 3600)? as f64,
            "exec_time" => made.scenario.seconds = count(1, 3600)? as f64,
            "log_level" => {}
            "ntp" => made
                .notes
                .push("ntp: not used, as this machine's clock makes all stamps.".to_owned()),
            "output" => made.output = Some(value.to_owned()),
            "user_name" => user = Some(value.to_owned()),
            "password" => password = Some(value.as_bytes().to_vec()),
            "tls" => is_tls = truth()?,
            "tls_rootca_cert" => made.tls[0] = Some(value.to_owned()),
            "tls_client_key" => made.tls[1] = Some(value.to_owned()),
            "tls_client_cert_chain" => made.tls[2] = Some(value.to_owned()),
            key => return Err(at(&format!("{key:?} is no key of MQTTLoader."))),
        }
    }
    if host.is_empty() {
        return Err(Failure::Use("broker is missing: which host?".to_owned()));
    }
    if host.contains(':') && !host.starts_with('[') {
        host = format!("[{host}]");
    }
    let (scheme, usual) = if is_tls {
        ("mqtts://", 8883)
    } else {
        ("", 1883)
    };
    made.broker = format!("{scheme}{host}:{}", port.unwrap_or(usual));
    if !is_tls {
        made.tls = [None, None, None];
    }
    made.login = user.map(|name| (name, password.unwrap_or_default()));
    made.scenario.group.push(group);
    made.scenario.check()?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# a comment\nbroker = 127.0.0.1\nbroker_port=1884\nmqtt_version = 3\n\
        num_publishers = 2\nnum_subscribers = 3\nqos_publisher = 1\nqos_subscriber = 2\n\
        shared_subscription = true\nretain = true\ntopic = a/b\npayload = 8\nnum_messages = 7\n\
        ramp_up = 1\nramp_down = 2\ninterval = 500\nsubscriber_timeout = 4\nexec_time = 9\n\
        log_level = INFO\nntp = pool\noutput = .\nuser_name = u\npassword = p=q\n";

    #[test]
    fn each_key_is_understood() {
        let found = parse(FILE).unwrap();
        assert_eq!(
            (found.broker.as_str(), found.version),
            ("127.0.0.1:1884", Version::V3)
        );
        assert_eq!(found.login, Some(("u".to_owned(), b"p=q".to_vec())));
        assert_eq!(
            (found.patience_s, found.output.as_deref()),
            (4.0, Some("."))
        );
        assert_eq!(found.notes.len(), 1);
        let Scenario {
            seconds,
            ramp_up_s,
            ramp_down_s,
            group,
            ..
        } = found.scenario;
        assert_eq!((seconds, ramp_up_s, ramp_down_s), (9.0, 1.0, 2.0));
        let expected = Group {
            name: "ml".to_owned(),
            kind: Kind::Latency,
            topics: 1,
            publishers: 2,
            subscribers: 3,
            qos: 1,
            subscriber_qos: Some(2),
            payload: 8,
            interval_us: 500.0,
            messages: Some(7),
            together: false,
            retain: true,
            shared: true,
            topic: "a/b".to_owned(),
            ..Group::default()
        };
        assert_eq!(group, [expected]);
    }

    #[test]
    fn what_cannot_be_done_is_told_by_line_key_and_limit() {
        for (text, expected) in [
            ("", "broker is missing"),
            ("broker", "line 1: no key = value"),
            (
                "broker = h\nnum_publisher = 2",
                "line 2: \"num_publisher\" is no key of MQTTLoader",
            ),
            ("broker = h\npayload = 7", "payload 7: give a number from 8"),
            (
                "broker = h\nqos_publisher = 3",
                "qos_publisher 3: give a number from 0 to 2",
            ),
            ("broker = h\nretain = yes", "retain yes: give true or false"),
            ("broker = h\ninterval = -1", "interval -1"),
            ("broker = h\nmqtt_version = 4", "give 3 or 5"),
            ("broker = h\ntls = 1", "tls 1: give true or false"),
            ("broker = h\ntopic = a/#", "must not contain # or +"),
            ("broker = h\nexec_time = 5\nramp_up = 5", "leave nothing"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                matches!(&error, Failure::Use(found) if found.contains(expected)),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn an_address_of_ipv6_gets_brackets() {
        assert_eq!(parse("broker = ::1").unwrap().broker, "[::1]:1883");
    }

    #[test]
    fn tls_has_a_port_and_files_of_its_own() {
        let text = "broker = h\ntls_rootca_cert = /none\ntls = ";
        let plain = parse(&format!("{text}false")).unwrap();
        assert_eq!(plain.broker, "h:1883");
        assert!(plain.pem().unwrap().is_empty());
        let found = parse(&format!("{text}true")).unwrap();
        assert_eq!(found.broker, "mqtts://h:8883");
        assert!(found.pem().unwrap_err().to_string().contains("/none"));
    }
}
