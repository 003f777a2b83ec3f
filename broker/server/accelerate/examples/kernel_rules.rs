//! Sets rules in the kernel by hand: reads one command a line from standard input, and prints one
//! answer a line.
//!
//! `kernel_rules [--in-path] [--clsact] [--broker ADDRESS:PORT/VLAN/sn|udp]... INTERFACE...`

use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use mqtick_accelerate::kernel::{Attach, Kernel};
use mqtick_accelerate::neighbours::Neighbours;
use mqtick_accelerate::rules::{Broker, Flags, Hop, Key, Name, Protocol, Subscriber, Topic};

type Answer = Result<String, Box<dyn std::error::Error>>;

fn parsed<T: FromStr>(word: Option<&str>) -> Result<T, String> {
    let word = word.ok_or("a word is missing")?;
    word.parse().map_err(|_| format!("{word}: not understood"))
}

fn octets<const N: usize>(word: Option<&str>) -> Result<[u8; N], Box<dyn std::error::Error>> {
    Ok(hex(word.ok_or("a word is missing")?)?
        .try_into()
        .map_err(|_| "wrong length")?)
}

fn hex(word: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let pair = |at| {
        Ok(u8::from_str_radix(
            word.get(at..at + 2).ok_or("odd length")?,
            16,
        )?)
    };
    (0..word.len()).step_by(2).map(pair).collect()
}

fn topic(word: Option<&str>) -> Result<Topic, Box<dyn std::error::Error>> {
    let (kind, rest) = word
        .and_then(|word| word.split_once('='))
        .ok_or("KIND=ID")?;
    Ok(match kind {
        "registered" => Topic::Registered(rest.parse()?),
        "predefined" => Topic::Predefined(rest.parse()?),
        "short" => Topic::Short(octets(Some(rest))?),
        _ => Topic::Name(Name::new(&hex(rest)?).ok_or("1 to 64 octets")?),
    })
}

fn key(words: &mut dyn Iterator<Item = &str>) -> Result<Key, Box<dyn std::error::Error>> {
    Ok(Key {
        broker: parsed(words.next())?,
        publisher: words
            .next()
            .filter(|word| *word != "-")
            .map(str::parse)
            .transpose()?,
        topic: topic(words.next())?,
    })
}

fn obey(kernel: &mut Kernel, neighbours: &mut Neighbours, line: &str) -> Answer {
    let words = &mut line.split_whitespace();
    match words.next().unwrap_or_default() {
        "hop" => {
            let number = parsed(words.next())?;
            let hop = Hop {
                interface: parsed(words.next())?,
                destination: octets(words.next())?,
                source: octets(words.next())?,
                ttl: parsed(words.next())?,
                up: parsed(words.next())?,
                vlan: words.next().map_or(Ok(0), |word| parsed(Some(word)))?,
            };
            kernel.set_hop(number, hop)?;
        }
        "rule" => {
            let key = key(words)?;
            let flags = words.next().unwrap_or_default();
            let flags = Flags {
                broker: flags.contains("broker"),
                mark: flags.contains("mark"),
                residence: flags.contains("residence"),
                pass: flags.contains("pass"),
            };
            let subscribers = words.map(|word| {
                let mut parts = word.split(',');
                Ok(Subscriber {
                    address: parsed(parts.next())?,
                    topic: match parts.next() {
                        Some("name=") => key.topic, // the topic of the rule
                        word => topic(word)?,
                    },
                    hop: parsed(parts.next())?,
                })
            });
            let subscribers =
                subscribers.collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
            kernel.set(&key, &subscribers, flags)?;
        }
        "open" => kernel.open(&key(words)?, parsed(words.next())?)?,
        "fill" => {
            let count: u16 = parsed(words.next())?;
            let of = |port, topic| Key {
                broker: 0,
                publisher: Some(SocketAddr::from(([10, 9, 9, 9], port))),
                topic: Topic::Predefined(topic),
            };
            for topic in 0..count {
                if let Err(error) = kernel.set(&of(5000, topic), &[], Flags::default()) {
                    return Ok(format!("{topic} {:?}", error.kind()));
                }
            }
        }
        "way" => {
            let _ = neighbours.changes()?;
            let to = parsed(words.next())?;
            neighbours.confirm(to);
            return Ok(neighbours.way(to).map_or_else(
                || "none".to_owned(),
                |way| {
                    let mac = way.destination.map(|octet| format!("{octet:02x}"));
                    format!("{} {}", way.interface, mac.join(":"))
                },
            ));
        }
        "remove" => kernel.remove(&key(words)?)?,
        "counts" => {
            let counts = kernel.rule_counters(&key(words)?)?;
            return Ok(format!("{} {} {}", counts.slow, counts.hits, counts.copies));
        }
        "counters" => {
            let counters = kernel.counters()?;
            let counted = counters.into_iter().filter(|(_, n)| *n != 0);
            return Ok(counted.map(|(name, n)| format!("{name}={n} ")).collect());
        }
        "done" => kernel.done(kernel.seen()?)?,
        "client" => kernel.keep_back(parsed(words.next())?, 0, parsed(words.next())?)?,
        "heard" => return Ok(format!("{:?}", kernel.heard_ns(parsed(words.next())?, 0))),
        "inject" => {
            let interface = parsed(words.next())?;
            kernel.inject(interface, &hex(words.next().unwrap_or_default())?, true)?;
        }
        "event" => {
            return Ok(kernel.next_event().map_or_else(String::new, |event| {
                let message: String = event.message.iter().map(|o| format!("{o:02x}")).collect();
                format!(
                    "{:?} {} {} egress={} from_broker={} kept_back={} raises={} vlan={} {message}",
                    event.reason,
                    event.source,
                    event.destination,
                    event.at_egress,
                    event.from_broker,
                    event.kept_back,
                    event.raises,
                    event.vlan,
                )
            }));
        }
        "time" => {
            let times = parsed(words.next())?;
            let frame = hex(words.next().unwrap_or_default())?;
            return Ok(kernel.time(&frame, times)?.as_nanos().to_string());
        }
        other => return Err(format!("{other}: no such command").into()),
    }
    Ok("ok".to_owned())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut brokers, mut interfaces) = (Vec::new(), Vec::new());
    let (mut in_path, mut attach) = (false, Attach::best());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--in-path" => in_path = true,
            "--clsact" => attach = Attach::Clsact,
            "--broker" => {
                let word = words.next().ok_or("--broker needs a value")?;
                let mut parts = word.split('/');
                let address: SocketAddr = parsed(parts.next())?;
                let vlan = parsed(parts.next())?;
                let protocol = if parts.next() == Some("sn") {
                    Protocol::MqttSn
                } else {
                    Protocol::MqttUdp
                };
                brokers.push(Broker {
                    address,
                    vlan,
                    protocol,
                });
            }
            _ => interfaces.push(word),
        }
    }
    let interfaces: Vec<_> = interfaces.iter().map(String::as_str).collect();
    let mut kernel = Kernel::start(&interfaces, &brokers, in_path, attach)?;
    let from = brokers
        .first()
        .map_or([0; 4].into(), |one| one.address.ip());
    let mut neighbours = Neighbours::new(from, None)?;
    while !kernel.is_steady() {
        std::thread::sleep(Duration::from_millis(20));
        kernel.alive()?;
    }
    println!("ready {attach:?}");
    let (lines, commands) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match commands.recv_timeout(Duration::from_millis(250)) {
            Ok(line) => {
                kernel.alive()?;
                let answer = obey(&mut kernel, &mut neighbours, &line);
                println!(
                    "{}",
                    answer.unwrap_or_else(|error| format!("error {error}"))
                );
                io::stdout().flush()?;
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => kernel.alive()?,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}
