//! Whether options and scenarios make sense.

use mqtick_packet::{Qos, Version};

use crate::command::Command;
use crate::options::{Options, Search};
use crate::scenario::{CLIENTS, Group, Scenario};
use crate::values::tls_host;
use crate::wire::{LEAST_SIZE, STREAMS};
use crate::{Failure, Outcome};

/// Octets of a payload beside which a datagram has room for the topic.
const LONGEST_OVER_UDP: usize = 1400;

impl Options {
    /// Checks that the options do not contradict each other.
    ///
    /// # Errors
    /// [`Failure::Use`], with the option, the value and the limit.
    pub fn check(&self) -> Outcome<()> {
        if self.command == Command::Run && self.file.is_none() {
            let text = "run needs a file: a scenario (.toml) or a mqttloader.conf.";
            return Err(Failure::Use(text.to_owned()));
        }
        if self.command == Command::Pairs && self.burst as u64 > self.window {
            return Err(Failure::Use(format!(
                "--burst {} is more than --window {}: a burst has to fit.",
                self.burst, self.window
            )));
        }
        if self.subscribers * self.messages > 100_000_000 {
            return Err(Failure::Use(format!(
                "--subscribers {} times --messages {} is more than 100 million stamps: ask for \
                 fewer messages and more --repeats.",
                self.subscribers, self.messages
            )));
        }
        if self.command == Command::Limit && self.repeats < 2 {
            let text = "--repeats 1: the spread of one bisection is not known, so at least 2.";
            return Err(Failure::Use(text.to_owned()));
        }
        let of_fast = ["trial", "resolution", "repeats"];
        if self.search == Search::Published
            && let Some(name) = of_fast.iter().find(|one| self.is_given(one))
        {
            let text = format!("--search published takes no --{name}; see --help.");
            return Err(Failure::Use(text));
        }
        if self.command == Command::Idle && self.broker_pid.is_none() {
            return Err(Failure::Use(
                "idle measures a process: name it by --broker-pid.".to_owned(),
            ));
        }
        if self.rate.is_some() && self.burst > 1 {
            return Err(Failure::Use(
                "--rate and --burst exclude each other.".to_owned(),
            ));
        }
        let plain = self.qos == Qos::AtMostOnce && self.version == Version::V3;
        if self.udp && (!plain || self.username.is_some()) {
            return Err(Failure::Use(
                "--udp takes MQTT 3.1.1 and QoS 0 only, and no --username.".to_owned(),
            ));
        }
        if self.sn && (self.udp || !plain || self.username.is_some()) {
            return Err(Failure::Use(
                "--sn takes QoS 0 only, no --udp, and no --username.".to_owned(),
            ));
        }
        if (self.udp || self.sn) && tls_host(&self.broker).is_some() {
            return Err(Failure::Use("--udp and --sn take no TLS.".to_owned()));
        }
        if (self.udp || self.sn) && self.size > LONGEST_OVER_UDP {
            return Err(Failure::Use(format!(
                "--udp and --sn take --size {LONGEST_OVER_UDP} at most, to fit a datagram."
            )));
        }
        if self
            .prefix
            .as_ref()
            .is_some_and(|one| one.contains(['#', '+', '\0']))
        {
            return Err(Failure::Use("--prefix must not contain # or +.".to_owned()));
        }
        if self.password_file.is_some() && self.username.is_none() {
            return Err(Failure::Use("--password-file needs --username.".to_owned()));
        }
        Ok(())
    }
}

impl Scenario {
    /// Checks that it can be carried out.
    ///
    /// # Errors
    /// [`Failure::Use`], with the key, the value and the limit.
    pub fn check(&self) -> Outcome<()> {
        // Subscribers send nothing, and their keep alive is an hour.
        within("seconds", self.seconds, 0.05, 3600.0)?;
        within("ramp_up_s", self.ramp_up_s, 0.0, 3600.0)?;
        within("ramp_down_s", self.ramp_down_s, 0.0, 3600.0)?;
        if self.ramp_up_s + self.ramp_down_s >= self.seconds {
            return Err(Failure::Use(format!(
                "ramp_up_s {} and ramp_down_s {} leave nothing of seconds {}.",
                self.ramp_up_s, self.ramp_down_s, self.seconds
            )));
        }
        if self.group.is_empty() {
            let text = "it has no [[group]], so nothing is published.";
            return Err(Failure::Use(text.to_owned()));
        }
        for (place, group) in self.group.iter().enumerate() {
            group.check()?;
            let before = self.group.get(..place).unwrap_or_default();
            if before.iter().any(|other| other.name == group.name) {
                let text = format!("two groups are called {:?}: give names.", group.name);
                return Err(Failure::Use(text));
            }
        }
        self.check_machines()?;
        let windows = self.group.iter().filter(|one| one.window > 0).count();
        if windows > 0 && (windows < self.group.len() || !self.machine.is_empty()) {
            let text = "window: give it to all groups or to none, and not with several machines.";
            return Err(Failure::Use(text.to_owned()));
        }
        if self.publishers() > STREAMS || self.clients() > CLIENTS {
            return Err(Failure::Use(format!(
                "{} clients are more than {CLIENTS}.",
                self.clients()
            )));
        }
        Ok(())
    }

    fn check_machines(&self) -> Outcome<()> {
        let wrong = |text: String| Err(Failure::Use(text));
        for (place, one) in self.machine.iter().enumerate() {
            if one.name.is_empty() || one.name.len() > 64 || one.name.contains(is_no_name) {
                return wrong(format!(
                    "machine {:?}: name: 1 to 64 letters, digits, - or _.",
                    one.name
                ));
            }
            let before = self.machine.get(..place).unwrap_or_default();
            if before.iter().any(|other| other.name == one.name) {
                return wrong(format!("two machines are called {:?}.", one.name));
            }
            let is_odd = |text: &str, more: &str| {
                let is_usual = |one: char| one.is_ascii_alphanumeric() || more.contains(one);
                text.is_empty() || text.starts_with('-') || !text.chars().all(is_usual)
            };
            if one
                .ssh
                .as_ref()
                .is_some_and(|host| is_odd(host, "-_.@:%[]/"))
            {
                let text = "ssh: give [USER@]HOST, or a name in ~/.ssh/config.";
                return wrong(format!("machine {:?}: {text}", one.name));
            }
            if is_odd(&one.program, "-_./~") {
                let text = "program: letters, digits, and any of - _ . / ~";
                return wrong(format!("machine {:?}: {text}", one.name));
            }
        }
        for group in &self.group {
            let both = [&group.publisher_machines, &group.subscriber_machines];
            for name in both.into_iter().flatten() {
                if !self.machine.iter().any(|one| one.name == *name) {
                    let text =
                        format!("group {:?}: no [[machine]] is called {name:?}.", group.name);
                    return wrong(text);
                }
            }
            let on = match group.subscriber_machines.len() {
                0 => self.machine.len(),
                count => count,
            };
            if group.shared && on > 1 {
                let text = "subscribers that share messages must be on one machine: see \
                            subscriber_machines.";
                return wrong(format!("group {:?}: {text}", group.name));
            }
        }
        Ok(())
    }
}

impl Group {
    fn check(&self) -> Outcome<()> {
        let named = |failure| match failure {
            Failure::Use(why) => Failure::Use(format!("group {:?}: {why}", self.name)),
            other => other,
        };
        self.check_values().map_err(named)
    }

    fn check_values(&self) -> Outcome<()> {
        let wrong = |text: &str| Err(Failure::Use(text.to_owned()));
        if self.name.is_empty() || self.name.len() > 64 || self.name.contains(is_no_name) {
            return wrong("name: 1 to 64 letters, digits, - or _.");
        }
        let counts = [
            ("topics", self.topics, 1),
            ("publishers", self.publishers, 1),
            ("subscribers", self.subscribers, 0),
            ("burst", self.burst as usize, 1),
            ("window", self.window as usize, 0),
        ];
        for (key, value, least) in counts {
            within(key, value as f64, least as f64, CLIENTS as f64)?;
        }
        within("qos", f64::from(self.qos), 0.0, 2.0)?;
        within(
            "subscriber_qos",
            f64::from(self.subscriber_qos.unwrap_or(0)),
            0.0,
            2.0,
        )?;
        within(
            "payload",
            self.payload as f64,
            LEAST_SIZE as f64,
            (1 << 20) as f64,
        )?;
        if self.interval_us != 0.0 {
            within("interval_us", self.interval_us, 0.1, 3.6e9)?;
        }
        if self.messages == Some(0) {
            return wrong("messages 0: leave it out if there is to be no limit.");
        }
        if self.topic.contains(['#', '+', '\0']) || self.topic.len() > 1000 {
            return wrong("topic: it must not contain # or +, and has at most 1000 octets.");
        }
        if !self.topic.is_empty() && self.topics > 1 {
            return wrong("topic names one topic, so leave topics out.");
        }
        Ok(())
    }
}

fn is_no_name(one: char) -> bool {
    !(one.is_ascii_alphanumeric() || one == '-' || one == '_')
}

fn within(key: &str, value: f64, least: f64, most: f64) -> Outcome<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let text = format!("{key} {value}: give a number from {least} to {most}.");
    Err(Failure::Use(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_file_is_told_by_key_value_and_limit() {
        for (text, expected) in [
            ("", "no [[group]]"),
            ("seconds = \"x\"\n[[group]]", "invalid type"),
            (
                "second = 1",
                "unknown field `second`, expected one of `seconds`",
            ),
            (
                "[[group]]\nqos = 3",
                "group \"t\": qos 3: give a number from 0 to 2",
            ),
            ("[[group]]\npayload = 7", "payload 7: give a number from 8"),
            (
                "[[group]]\npublishers = 0",
                "publishers 0: give a number from 1",
            ),
            ("[[group]]\npublishers = -1", "invalid value"),
            (
                "[[group]]\ntopics = 10000\npublishers = 10000",
                "are more than 1000000",
            ),
            ("[[group]]\n[[group]]", "two groups are called \"t\""),
            ("[[group]]\ninterval_us = nan", "interval_us NaN"),
            ("[[group]]\ninterval_us = 1e-3", "interval_us 0.001"),
            (
                "[[group]]\nkind = \"x\"",
                "unknown variant `x`, expected `load` or `latency`",
            ),
            ("[[group]]\nname = \"a/b\"", "letters, digits"),
            ("[[group]]\ntopic = \"a/#\"", "must not contain # or +"),
            ("[[group]]\ntopic = \"a\"\ntopics = 2", "names one topic"),
            ("seconds = inf\n[[group]]", "seconds inf"),
            (
                "seconds = 2\nramp_up_s = 2\n[[group]]",
                "leave nothing of seconds 2",
            ),
            ("[[group]]\nmessages = 0", "messages 0"),
            ("[[machine]]\n[[group]]", "machine \"\": name: 1 to 64"),
            (
                "[[machine]]\nname = \"a\"\n[[machine]]\nname = \"a\"\n[[group]]",
                "two machines are called \"a\"",
            ),
            (
                "[[machine]]\nname = \"a\"\nssh = \"-oProxyCommand=x\"\n[[group]]",
                "ssh: give [USER@]HOST",
            ),
            (
                "[[machine]]\nname = \"a\"\nprogram = \"x;y\"\n[[group]]",
                "program: letters, digits",
            ),
            (
                "[[group]]\nsubscriber_machines = [\"b\"]",
                "no [[machine]] is called \"b\"",
            ),
            (
                "[[machine]]\nname = \"a\"\n[[machine]]\nname = \"b\"\n[[group]]\nshared = true",
                "subscribers that share messages must be on one machine",
            ),
            ("[[[[", "TOML parse error"),
        ] {
            let error = Scenario::parse(text).unwrap_err();
            assert!(
                matches!(&error, Failure::Use(found) if found.contains(expected)),
                "{text}: {error}"
            );
        }
    }
}
