//! Compares with Mosquitto itself: random rules and passwords have to allow the same in both.
//!
//! `MQTICK_ROUNDS` sets the number of files (12), `MQTICK_SEED` the first seed.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mqtick_access::{Action, Passwords, Rules};

/// Pseudorandom numbers, the same for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % limit
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn levels(&mut self, all: &[&str]) -> String {
        let count = 1 + self.below(3);
        let levels: Vec<&str> = (0..count).map(|_| self.of(all)).collect();
        levels.join("/")
    }
}

fn from_environment(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().unwrap())
}

/// A temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mqtick-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn program(name: &str) -> Option<Command> {
    let found = |folder: &str| PathBuf::from(folder).join(name);
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let found = path.split(':').map(found).find(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not installed (apt-get install mosquitto)");
    }
    found.map(Command::new)
}

/// A running Mosquitto.
struct Mosquitto {
    child: Child,
    port: u16,
}

impl Mosquitto {
    /// Start it with these settings. `None`: it has ended, because it refused the file.
    fn start(mut program: Command, folder: &Folder, settings: &str) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let text =
            format!("set_tcp_nodelay true\nlistener {port} 127.0.0.1\nuser root\n{settings}\n");
        let file = folder.write("mosquitto.conf", &text);
        let quiet = program
            .arg("-c")
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = quiet.spawn().unwrap();
        loop {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(Self { child, port });
            }
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// Connect a client. `None`: it was refused.
    fn client(&self, user: Option<&str>, password: Option<&str>, id: &str) -> Option<Client> {
        let mut client = Client(TcpStream::connect(("127.0.0.1", self.port)).unwrap());
        client
            .0
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let flags = u8::from(user.is_some()) << 7 | u8::from(password.is_some()) << 6 | 2;
        let mut body = b"\0\x04MQTT\x04".to_vec();
        body.extend([flags, 0, 60]);
        for text in [Some(id), user, password].into_iter().flatten() {
            put(&mut body, text);
        }
        client.send(0x10, &body);
        (client.packet().1[1] == 0).then_some(client)
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn put(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as u16).to_be_bytes());
    body.extend(text.as_bytes());
}

/// A minimal MQTT client; no packet is longer than 16 KiB.
struct Client(TcpStream);

impl Client {
    fn send(&mut self, kind: u8, body: &[u8]) {
        let length = [body.len() as u8 | 0x80, (body.len() >> 7) as u8];
        self.0
            .write_all(&[&[kind], &length[..], body].concat())
            .unwrap();
    }

    fn packet(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).unwrap();
        let mut length = usize::from(head[1] & 0x7f);
        if head[1] > 0x7f {
            let mut more = [0];
            self.0.read_exact(&mut more).unwrap();
            length |= usize::from(more[0]) << 7;
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (head[0] >> 4, body)
    }

    /// Subscribe. Returns whether this was granted.
    fn subscribe(&mut self, filter: &str) -> bool {
        let mut body = vec![0, 1];
        put(&mut body, filter);
        body.push(0);
        self.send(0x82, &body);
        loop {
            if let (9, body) = self.packet() {
                return body[2] == 0;
            }
        }
    }

    fn publish(&mut self, topic: &str, payload: &str) {
        let mut body = Vec::new();
        put(&mut body, topic);
        body.extend(payload.as_bytes());
        self.send(0x30, &body);
    }

    /// Wait until the broker has processed everything. Returns the (topic, payload) of messages
    /// that came meanwhile.
    fn settle(&mut self) -> HashSet<(String, String)> {
        self.send(0xc0, b"");
        let mut came = HashSet::new();
        loop {
            let (kind, body) = self.packet();
            match kind {
                13 => return came,
                3 => {
                    let (topic, payload) = body[2..].split_at(usize::from(body[1]));
                    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
                    came.insert((text(topic), text(payload)));
                }
                _ => {}
            }
        }
    }
}

const NAMES: [&str; 8] = ["bob", "al", "a", "a/b", "+", "b#", "$d", ""];
const ADMIN: &str = "\nuser admin\ntopic readwrite #\ntopic readwrite $d/#\n";

fn random_file(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(14) {
        let keyword = random.of(&["user", "topic", "topic", "topic", "pattern", "pattern"]);
        if keyword == "user" {
            text += &format!("user {}\n", random.of(&NAMES[..7]));
            continue;
        }
        let access = random.of(&[
            "",
            "read ",
            "write ",
            "readwrite ",
            "deny ",
            "  ",
            "read   ",
        ]);
        let mut filter = random.levels(&["a", "b", "", "+", "%u", "%c", "x%u", "%c%u", "bob", "%"]);
        match random.below(12) {
            0 => filter = "#".into(),
            1..=3 => filter += "/#",
            4 => filter = format!("$d/{filter}"),
            5 if random.below(6) == 0 => filter += "+", // usually not a valid filter
            _ => {}
        }
        text += &format!("{keyword} {access}{filter}\n");
    }
    text
}

#[test]
fn random_access_files_mean_what_they_mean_to_mosquitto() {
    if program("mosquitto").is_none() {
        return;
    }
    let folder = Folder::new("rules");
    let first = from_environment("MQTICK_SEED", 1);
    for seed in first..first + from_environment("MQTICK_ROUNDS", 12) {
        compare_rules(seed, &folder);
    }
}

fn compare_rules(seed: u64, folder: &Folder) {
    let random = &mut Random(seed);
    let text = random_file(random) + ADMIN;
    let file = folder.write("acl", &text);
    let settings = format!("allow_anonymous true\nacl_file {}", file.display());
    let mosquitto = Mosquitto::start(program("mosquitto").unwrap(), folder, &settings);
    let rules = Rules::parse(&text);
    assert_eq!(
        rules.is_ok(),
        mosquitto.is_some(),
        "seed {seed}: {rules:?}\n{text}"
    );
    let (Ok(rules), Some(mosquitto)) = (rules, mosquitto) else {
        return;
    };

    let topics: HashSet<String> = (0..40)
        .map(|_| {
            let topic = random.levels(&["a", "b", "", "bob", "al", "x", "xbob", "i0", "i0bob"]);
            if random.below(5) == 0 {
                format!("$d/{topic}")
            } else {
                topic
            }
        })
        .filter(|topic| !topic.is_empty())
        .collect();
    let mut admin = mosquitto.client(Some("admin"), None, "admin").unwrap();
    assert!(admin.subscribe("#") && admin.subscribe("$d/#"));
    let mut clients: Vec<_> = (0..6)
        .map(|number| {
            let user = Some(random.of(&NAMES)).filter(|_| random.below(6) > 0);
            let id = match random.below(8) {
                0 => format!("i/{number}"),
                1 => format!("i+{number}"),
                2 => format!("$d{number}"),
                _ => format!("i{number}"),
            };
            let mut client = mosquitto.client(user, None, &id).unwrap();
            for filter in ["#", "$d/#"] {
                assert!(client.subscribe(filter), "it grants all");
            }
            (user, id, client)
        })
        .collect();
    for topic in &topics {
        admin.publish(topic, "admin");
    }
    admin.settle();
    for (user, id, client) in &mut clients {
        let read = client.settle();
        for topic in &topics {
            client.publish(topic, id);
        }
        client.settle();
        let written = admin.settle();
        for topic in &topics {
            for (action, there) in [
                (
                    Action::Read,
                    read.contains(&(topic.clone(), "admin".into())),
                ),
                (
                    Action::Write,
                    written.contains(&(topic.clone(), id.clone())),
                ),
            ] {
                let here = rules.may(*user, id, action, topic);
                let filter = if topic.starts_with('$') { "$d/#" } else { "#" };
                let is_granted = rules.may(*user, id, Action::Subscribe, filter);
                assert!(
                    is_granted || action == Action::Write || !there,
                    "seed {seed}: {user:?} {id} {filter} {topic}\n{text}"
                );
                let stricter =
                    user.is_some_and(|name| name.contains(['/', '$'])) || id.contains(['/', '$']);
                let case = || format!("seed {seed}: {user:?} {id} {action:?} {topic}\n{text}");
                assert!(
                    here == there || (stricter && there),
                    "{} {here} {there}",
                    case()
                );
            }
        }
    }
}

#[test]
fn passwords_that_mosquitto_passwd_hashes_now_open_the_same_doors() {
    let (Some(mosquitto), Some(_)) = (program("mosquitto"), program("mosquitto_passwd")) else {
        return;
    };
    let folder = Folder::new("passwords");
    let file = folder.write("passwd", "");
    let random = &mut Random(from_environment("MQTICK_SEED", 1));
    let parts = [
        "a",
        "Z",
        " ",
        ":",
        "$",
        "$7$",
        "ö",
        "漢",
        "'",
        "#",
        "longer than that",
    ];
    let users: Vec<(String, String)> = (0..8)
        .map(|number| {
            let password = (0..=random.below(12)).map(|_| random.of(&parts)).collect();
            (format!("user {number}"), password)
        })
        .collect();
    for (user, password) in &users {
        let mut program = program("mosquitto_passwd").unwrap();
        if user.ends_with(['1', '5']) {
            program.args(["-H", "sha512"]);
        }
        let done = program
            .arg("-b")
            .arg(&file)
            .args([user, password])
            .status()
            .unwrap();
        assert!(done.success(), "{user} {password:?}");
    }
    let text = fs::read_to_string(&file).unwrap();
    let here = Passwords::parse(&text).unwrap();
    let settings = format!("allow_anonymous false\npassword_file {}", file.display());
    let there = Mosquitto::start(mosquitto, &folder, &settings).unwrap();
    for (user, own) in &users {
        for (_, password) in &users {
            let right = here.check(user, password.as_bytes());
            assert_eq!(right, password == own, "{user} {password:?}");
            let let_in = there.client(Some(user), Some(password), "c").is_some();
            assert_eq!(right, let_in, "{user} {password:?}");
        }
    }
    assert_eq!(
        there.client(Some("nobody"), Some("x"), "c").is_some(),
        here.check("nobody", b"x")
    );
}
