//! The file of a scenario: reads it, and checks that it can be carried out.

use crate::protocol::wire::{LEAST_SIZE, STREAMS};
use crate::settings::scenario::{Group, Machine, Scenario};
use mqtick_net::failure::{Failure, Outcome, refuse_if};
use std::fs;

/// Most octets of a file.
const LONGEST: u64 = 1 << 20;

/// Most clients of a scenario.
const CLIENTS: usize = 1_000_000;

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Failure::Use`], with the file and the mistake.
    pub fn load(path: &str) -> Outcome<Self> {
        Self::parse(&read(path)?).map_err(|failure| failure.at(path))
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`Failure::Use`], with the mistake.
    pub fn parse(text: &str) -> Outcome<Self> {
        let found: Self = toml::from_str(text)
            .map_err(|error| Failure::Use(error.to_string().trim_end().to_owned()))?;
        found.check()?;
        Ok(found)
    }

    /// Checks that it can be carried out.
    ///
    /// # Errors
    /// [`Failure::Use`], with the key, the value and the limit.
    pub fn check(&self) -> Outcome<()> {
        // Subscribers send nothing, and their keep alive is an hour.
        within("seconds", self.seconds, 0.05, 3600.0)?;
        within("ramp_up_s", self.ramp_up_s, 0.0, 3600.0)?;
        within("ramp_down_s", self.ramp_down_s, 0.0, 3600.0)?;
        refuse_if(
            self.ramp_up_s + self.ramp_down_s >= self.seconds,
            format!(
                "ramp_up_s {} and ramp_down_s {} leave nothing of seconds {}.",
                self.ramp_up_s, self.ramp_down_s, self.seconds
            ),
        )?;
        refuse_if(
            self.group.is_empty(),
            "it has no [[group]], so nothing is published.",
        )?;
        for (place, group) in self.group.iter().enumerate() {
            let named = |failure: Failure| failure.at(format!("group {:?}", group.name));
            group.check().map_err(named)?;
            let mut before = self.group.iter().take(place);
            refuse_if(
                before.any(|other| other.name == group.name),
                format!("two groups are called {:?}: give names.", group.name),
            )?;
        }
        self.check_machines()?;
        let windows = self.group.iter().filter(|one| one.window > 0).count();
        refuse_if(
            windows > 0 && (windows < self.group.len() || !self.machine.is_empty()),
            "window: give it to all groups or to none, and not with several machines.",
        )?;
        refuse_if(
            self.publishers() > STREAMS || self.clients() > CLIENTS,
            format!("{} clients are more than {CLIENTS}.", self.clients()),
        )
    }

    fn check_machines(&self) -> Outcome<()> {
        for (place, one) in self.machine.iter().enumerate() {
            let named = |failure: Failure| failure.at(format!("machine {:?}", one.name));
            one.check().map_err(named)?;
            let mut before = self.machine.iter().take(place);
            refuse_if(
                before.any(|other| other.name == one.name),
                format!("two machines are called {:?}.", one.name),
            )?;
        }
        for group in &self.group {
            let both = [&group.publisher_machines, &group.subscriber_machines];
            for name in both.into_iter().flatten() {
                refuse_if(
                    !self.machine.iter().any(|one| one.name == *name),
                    format!("group {:?}: no [[machine]] is called {name:?}.", group.name),
                )?;
            }
            let on = match group.subscriber_machines.len() {
                0 => self.machine.len(),
                count => count,
            };
            refuse_if(
                group.shared && on > 1,
                format!(
                    "group {:?}: subscribers that share messages must be on one machine: see \
                     subscriber_machines.",
                    group.name
                ),
            )?;
        }
        Ok(())
    }
}

impl Machine {
    fn check(&self) -> Outcome<()> {
        check_name(&self.name)?;
        let is_odd = |text: &str, more: &str| {
            let is_usual = |one: char| one.is_ascii_alphanumeric() || more.contains(one);
            text.is_empty() || text.starts_with('-') || !text.chars().all(is_usual)
        };
        let host = self.ssh.as_deref();
        refuse_if(
            host.is_some_and(|host| is_odd(host, "-_.@:%[]/")),
            "ssh: give [USER@]HOST, or a name in ~/.ssh/config.",
        )?;
        refuse_if(
            is_odd(&self.program, "-_./~"),
            "program: letters, digits, and any of - _ . / ~",
        )
    }
}

impl Group {
    fn check(&self) -> Outcome<()> {
        check_name(&self.name)?;
        for (key, value, least, most) in [
            ("topics", self.topics, 1, CLIENTS),
            ("publishers", self.publishers, 1, CLIENTS),
            ("subscribers", self.subscribers, 0, CLIENTS),
            ("burst", self.burst as usize, 1, CLIENTS),
            ("window", self.window as usize, 0, CLIENTS),
            ("qos", self.qos.into(), 0, 2),
            (
                "subscriber_qos",
                self.subscriber_qos.unwrap_or(0).into(),
                0,
                2,
            ),
            ("payload", self.payload, LEAST_SIZE, 1 << 20),
        ] {
            within(key, value as f64, least as f64, most as f64)?;
        }
        if self.interval_us != 0.0 {
            within("interval_us", self.interval_us, 0.1, 3.6e9)?;
        }
        refuse_if(
            self.messages == Some(0),
            "messages 0: leave it out if there is to be no limit.",
        )?;
        refuse_if(
            self.topic.contains(['#', '+', '\0']) || self.topic.len() > 1000,
            "topic: it must not contain # or +, and has at most 1000 octets.",
        )?;
        refuse_if(
            !self.topic.is_empty() && self.topics > 1,
            "topic names one topic, so leave topics out.",
        )
    }
}

fn check_name(name: &str) -> Outcome<()> {
    let is_usual = |one: char| one.is_ascii_alphanumeric() || one == '-' || one == '_';
    refuse_if(
        !(1..=64).contains(&name.len()) || !name.chars().all(is_usual),
        "name: 1 to 64 letters, digits, - or _.",
    )
}

fn within(key: &str, value: f64, least: f64, most: f64) -> Outcome<()> {
    refuse_if(
        !(least..=most).contains(&value),
        format!("{key} {value}: give a number from {least} to {most}."),
    )
}

/// Reads a small text file.
///
/// # Errors
/// [`Failure::Use`], with the reason.
pub fn read(path: &str) -> Outcome<String> {
    let wrong = |why: String| Failure::Use(format!("{path}: {why}"));
    let about = fs::metadata(path).map_err(|error| wrong(format!("{error}.")))?;
    if !about.is_file() || about.len() > LONGEST {
        return Err(wrong(format!("not a file of at most {LONGEST} octets.")));
    }
    let octets = fs::read(path).map_err(|error| wrong(format!("{error}.")))?;
    String::from_utf8(octets).map_err(|_| wrong("it is not UTF-8.".to_owned()))
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
