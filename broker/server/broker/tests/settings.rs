//! The configuration file: what it means, and what is said of one that is wrong.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use mqtick_broker::settings::{DeliveryTopic, Mode, Settings, Subnet};
use mqtick_net::settings::{Error, Place, Tls, Transport, load};

const EXAMPLE: &str = include_str!("../../broker.toml.example");

fn parse(text: &str) -> Result<Settings, Error> {
    text.parse()
}

fn said(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn the_example_is_the_defaults_and_so_is_an_empty_file() {
    assert_eq!(parse(EXAMPLE).unwrap(), Settings::default());
    assert_eq!(parse("").unwrap(), Settings::default());
    assert!(Settings::default().check().is_ok() && Settings::default().warnings().is_empty());
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
        .filter(|line| !line.starts_with("path = \"/run") && !line.starts_with("systemd"))
        .map(|line| line.replace("subnets = []", "subnets = [\"192.168.1.0/24\"]"))
        .map(|line| line.replace("transport = \"mqtt\"", "transport = \"websocket\""))
        .collect();
    let settings = parse(&all.join("\n")).unwrap();
    assert!(settings.listeners[0].tls.is_some() && settings.udp.address.is_some());
    assert!(settings.access.acl_file.is_some() && settings.metrics.address.is_some());
    assert_eq!(
        settings.store.path.as_deref(),
        Some(Path::new("/var/lib/mqtick-broker"))
    );
    assert_eq!(settings.access.anonymous, Some(true));
}

#[test]
fn listeners_are_tcp_ports_unix_sockets_or_sockets_of_systemd() {
    let settings = parse(
        r#"
        access.anonymous = true
        [[listener]]
        address = "[::]:1883"
        [[listener]]
        path = "/run/mqtick/broker.sock"
        transport = "websocket"
        [[listener]]
        systemd = "mqtts"
        tls = { certificate = "c.pem", key = "k.pem", client_ca = "ca.pem", require_certificate = true }
        "#,
    )
    .unwrap();
    let places: Vec<_> = settings
        .listeners
        .iter()
        .map(|one| one.place.clone())
        .collect();
    assert_eq!(
        places,
        [
            Place::Tcp("[::]:1883".parse().unwrap()),
            Place::Unix("/run/mqtick/broker.sock".into()),
            Place::Systemd("mqtts".into()),
        ]
    );
    assert_eq!(settings.listeners[1].transport, Transport::Websocket);
    let tls = Tls {
        certificate: "c.pem".into(),
        key: "k.pem".into(),
        client_ca: Some("ca.pem".into()),
        require_certificate: true,
        identity_as_username: false,
    };
    assert_eq!(settings.listeners[2].tls, Some(tls));
}

#[test]
fn nobody_is_let_in_without_a_name_unless_only_this_machine_can_reach_the_broker() {
    let anonymous = |listeners: &str, access: &str| {
        parse(&format!("listener = [{listeners}]\n[access]\n{access}")).map(|one| one.anonymous())
    };
    let local = r#"{ address = "127.0.0.1:1883" }, { address = "[::1]:1883" }, { path = "/s" }"#;
    let public = r#"{ address = "127.0.0.1:1883" }, { address = "192.168.1.2:1883" }"#;
    let file = "password_file = \"p\"";
    assert_eq!(anonymous(local, ""), Ok(true));
    assert_eq!(
        anonymous(local, "anonymous = false\npassword_file = \"p\""),
        Ok(false)
    );
    assert_eq!(
        anonymous(local, file),
        Ok(false),
        "who has a password file means it"
    );
    assert_eq!(anonymous(public, file), Ok(false));
    assert_eq!(
        anonymous(r#"{ systemd = "s" }"#, file),
        Ok(false),
        "nobody knows where that is"
    );
    assert_eq!(
        anonymous(r#"{ address = "[::ffff:127.0.0.1]:1" }"#, ""),
        Ok(true)
    );
    let nobody = anonymous(public, "").unwrap_err().to_string();
    assert!(
        nobody.starts_with("line 2: access: nobody could connect"),
        "{nobody}"
    );
    assert!(anonymous(local, "anonymous = false").is_err());
    let by_certificate = r#"{ systemd = "s", tls = { certificate = "c", key = "k", client_ca = "a",
        require_certificate = true, identity_as_username = true } }"#;
    assert_eq!(anonymous(by_certificate, ""), Ok(false));
}

#[test]
fn a_public_listener_for_anybody_is_allowed_when_said_but_warned_of() {
    let text = "access.anonymous = true\n[[listener]]\naddress = \"0.0.0.0:1883\"\n[[listener]]\npath = \"/s\"";
    assert_eq!(
        parse(text).unwrap().warnings(),
        ["access.anonymous = true: whoever reaches 0.0.0.0:1883 may connect"]
    );
    let warnings = parse("metrics.address = \"0.0.0.0:9884\"")
        .unwrap()
        .warnings();
    assert_eq!(
        warnings,
        ["metrics.address: whoever reaches 0.0.0.0:9884 may read the metrics"]
    );
    let udp = "access.password_file = \"p\"\n[udp]\naddress = \"0.0.0.0:1883\"\nsubnets = [\"10.0.0.0/8\"]";
    let warnings = parse(udp).unwrap().warnings();
    assert!(
        warnings[0].starts_with("udp: asks for no password"),
        "{warnings:?}"
    );
}

#[test]
fn delivery_is_set_by_topic_filter() {
    let text = r#"
        [[delivery.topic]]
        filter = "lights/+/on"
        mode = "alternating"
        [[delivery.topic]]
        filter = "bulk/#"
        "#;
    let topics = parse(text).unwrap().delivery.topic;
    let topic = |filter: &str, mode| DeliveryTopic {
        filter: filter.into(),
        mode,
        residence: false,
    };
    assert_eq!(
        topics,
        [
            topic("lights/+/on", Mode::Alternating),
            topic("bulk/#", Mode::Batched)
        ]
    );
    assert_eq!(parse("[delivery]\ntopic = []").unwrap().delivery.topic, []);
}

#[test]
fn a_subnet_contains_its_own_addresses_only() {
    let subnet = |text: &str| text.parse::<Subnet>().unwrap();
    let within = |net: &str, address: &str| subnet(net).contains(address.parse().unwrap());
    assert!(within("192.168.1.0/24", "192.168.1.255"));
    assert!(!within("192.168.1.0/24", "192.168.2.0"));
    assert!(within("10.0.0.1/32", "10.0.0.1") && !within("10.0.0.1/32", "10.0.0.0"));
    assert!(within("0.0.0.0/0", "255.0.0.1") && !within("0.0.0.0/0", "::1"));
    assert!(within("fe80::/10", "febf::1") && !within("fe80::/10", "fec0::1"));
    assert!(within("::1/128", "::1") && !within("::1/128", "::"));
    assert!(!within("::/0", "1.2.3.4"));
    for bad in [
        "",
        "x",
        "10.0.0.0",
        "10.0.0.0/33",
        "10.0.0.1/8",
        "::1/64",
        "::/129",
        "10.0.0.0/-1",
    ] {
        let said = bad.parse::<Subnet>().unwrap_err();
        assert!(said.contains("192.168.1.0/24"), "{bad}: {said}");
    }
    assert_eq!(subnet("10.0.0.0/8").to_string(), "10.0.0.0/8");
}

#[test]
fn what_is_wrong_is_said_with_its_line_the_setting_and_what_would_be_right() {
    for (text, expected) in [
        (
            "\nthread = 1",
            "line 2: thread: unknown field `thread`, expected one of `threads`",
        ),
        (
            "[limits]\npackets = 1",
            "line 2: limits.packets: unknown field `packets`, expected one of",
        ),
        ("[limts]", "line 1: limts: unknown field `limts`"),
        (
            "threads = -1",
            "line 1: threads: invalid value: integer `-1`, expected a whole number",
        ),
        (
            "threads = 1025",
            "line 1: threads: is 1025; 0 to 1024 can be used",
        ),
        (
            "\n[limits]\ninflight = 70000",
            "line 3: limits.inflight: invalid value: integer `70000`, expected a whole number from 0 to 65535",
        ),
        (
            "[limits]\n\ninflight = 0",
            "line 3: limits.inflight: is 0; 1 to 65535",
        ),
        (
            "[delivery]\ngather_us = 1001",
            "line 2: delivery.gather_us: is 1001; 0 to 1000",
        ),
        (
            "[limits]\npacket = \"1 MB\"",
            "line 2: limits.packet: invalid type: string \"1 MB\", expected a whole number",
        ),
        (
            "[limits]\npacket = 268435461",
            "line 2: limits.packet: is 268435461; 128 to 268435460",
        ),
        ("limits.packet = 99999999999999999999", "line 1: "),
        (
            "limits.memory = 48000000",
            "line 1: limits.memory: three packets of limits.packet, 16777216 octets",
        ),
        (
            "[limits]\npacket = 2000\nqueue = 1999",
            "line 3: limits.queue: a packet of limits.packet, 2000 octets",
        ),
        (
            "[limits]\npacket = 100000000",
            "line 1: limits.queue: a packet of",
        ),
        (
            "[limits]\nconnect_timeout_s = 0",
            "line 2: limits.connect_timeout_s: is 0; 1 to 3600",
        ),
        (
            "[limits]\nretained_messages = 100000001",
            "line 2: limits.retained_messages: is",
        ),
        (
            "\n[[listener]]\naddress = \"1883\"",
            "line 3: listener[0].address: \"1883\" is no address with a port; write",
        ),
        (
            "[[listener]]\naddress = 1883",
            "line 2: listener[0].address: invalid type",
        ),
        (
            "[[listener]]\naddress = \"localhost:1883\"",
            "\"localhost:1883\" is no address",
        ),
        (
            "\n[[listener]]\n",
            "line 2: listener[0]: a listener has one of address, path and systemd",
        ),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\npath = \"/s\"",
            "listener[0]: a listener has one of",
        ),
        ("[[listener]]\npath = \"\"", "listener[0]: path is empty"),
        (
            "[[listener]]\npath = \"/s\"\ntransport = \"quic\"",
            "line 3: listener[0].transport: unknown variant `quic`, expected `mqtt` or `websocket`",
        ),
        (
            "[[listener]]\npath = \"/s\"\n[[listener]]\npath = \"/s\"",
            "line 3: listener[1]: /s is above, too",
        ),
        ("listener = []", "line 1: listener: is empty"),
        (
            "[[listener]]\npath = \"/s\"\ntls = { key = \"k\" }",
            "line 3: listener[0].tls: missing field `certificate`",
        ),
        (
            "[[listener]]\npath = \"/s\"\ntls = { certificate = \"k\" }",
            "line 3: listener[0].tls: missing field `key`",
        ),
        (
            "[[listener]]\npath = \"/s\"\n[listener.tls]\ncertificate = \"c\"\nkey = \"k\"\nrequire_certificate = true",
            "listener[0]: tls.require_certificate needs tls.client_ca",
        ),
        (
            "[[listener]]\npath = \"/s\"\n[listener.tls]\ncertificate = \"c\"\nkey = \"k\"\nidentity_as_username = true",
            "listener[0]: tls.identity_as_username needs",
        ),
        (
            "[access]\nanonymous = \"no\"",
            "line 2: access.anonymous: invalid type: string \"no\", expected a boolean",
        ),
        (
            "[access]\nanonymous = false",
            "line 1: access: nobody could connect",
        ),
        ("[store]\npath = \"\"", "line 2: store.path: is empty"),
        (
            "[[delivery.topic]]\nfilter = \"a\"\n[[delivery.topic]]\nfilter = \"a+\"",
            "line 4: delivery.topic[1].filter: \"a+\" is no topic filter",
        ),
        (
            "[[delivery.topic]]\nfilter = \"a/#/b\"",
            "is no topic filter",
        ),
        ("[[delivery.topic]]\nfilter = \"\"", "is no topic filter"),
        (
            "[[delivery.topic]]\nfilter = \"a\"\n[[delivery.topic]]\nfilter = \"a\"",
            "line 4: delivery.topic[1].filter: \"a\" is above, too",
        ),
        (
            "[[delivery.topic]]\nmode = \"ordered\"",
            "line 1: delivery.topic[0]: missing field `filter`",
        ),
        (
            "[[delivery.topic]]\nfilter = \"a\"\nmode = \"fast\"",
            "line 3: delivery.topic[0].mode: unknown variant `fast`, expected one of `batched`, `ordered`",
        ),
        (
            "[udp]\naddress = \"0.0.0.0:1883\"",
            "line 1: udp: has an address but answers nobody",
        ),
        (
            "[udp]\nsubnets = [\"10.0.0.0/8\"]",
            "line 1: udp: has subnets but no address",
        ),
        (
            "[udp]\naddress = \"[::]:1883\"\nsubnets = [\"10.0.0.0/8\"]",
            "line 2: udp.address: must be of IPv4",
        ),
        (
            "[udp]\naddress = \"0.0.0.0:1883\"\nsubnets = [\"10.0.0.0/8\", \"0.0.0.0/0\"]",
            "line 3: udp.subnets[1]: 0.0.0.0/0 is everybody",
        ),
        (
            "[udp]\naddress = \"0.0.0.0:1883\"\nsubnets = [\n\"10.0.0.0/8\",\n\"10.0.0.1/8\"]",
            "line 3: udp.subnets: \"10.0.0.1/8\" is no subnet",
        ),
        (
            "[udp]\naddress = \"0.0.0.0:1883\"\nsubnets = [\"fe80::/10\"]",
            "line 3: udp.subnets[0]: fe80::/10 must be of IPv4",
        ),
        ("threads = 1\nthreads = 2", "line 2: "),
        ("threads", "line 1: "),
        ("[limits]\npacket = ", "line 2: "),
        ("a\0b = 1", "line 1: "),
    ] {
        let said = said(text);
        assert!(said.contains(expected), "{text:?}\n{said}");
        assert!(!said.contains('\n'), "{said:?}");
    }
}

#[test]
fn what_is_said_of_a_file_begins_with_its_name() {
    let said = |path: &Path| load::<Settings>(path).unwrap_err().to_string();
    let nowhere = said(Path::new("/nowhere/broker.toml"));
    assert!(
        nowhere.starts_with("/nowhere/broker.toml: cannot be read: "),
        "{nowhere}"
    );
    assert!(said(Path::new("/")).starts_with("/: cannot be read: "));
    let path = std::env::temp_dir().join(format!("mqtick-settings-{}.toml", std::process::id()));
    std::fs::write(&path, "\nthreads = 2000").unwrap();
    let wrong = said(&path);
    std::fs::write(&path, b"threads = 2 # \xff").unwrap();
    let not_text = said(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        wrong,
        format!(
            "{}: line 2: threads: is 2000; 0 to 1024 can be used",
            path.display()
        )
    );
    assert!(not_text.contains("cannot be read: "), "{not_text}");
}

#[test]
fn damaged_files_are_read_or_refused_in_one_line() {
    for at in (0..EXAMPLE.len()).step_by(23) {
        for octet in [0, b'\n', b'"', b'[', b'=', b'#', b'-', b'9', 0xff] {
            let mut octets = EXAMPLE.as_bytes().to_vec();
            octets[at] = octet;
            if let Err(error) = parse(&String::from_utf8_lossy(&octets)) {
                assert!(
                    !error.to_string().contains('\n') && error.line.is_some(),
                    "{error}"
                );
            }
        }
    }
    for deep in [
        "a = ".to_string() + &"[".repeat(100_000),
        "a.".repeat(100_000) + "b = 1",
    ] {
        assert!(said(&deep).len() < 500);
    }
}

#[test]
fn sensors_are_answered_in_subnets_and_know_topics_by_ids() {
    let sn = |lines: &str| format!("[sn]\naddress = \"0.0.0.0:1884\"\n{lines}");
    let all = sn("subnets = [\"10.0.0.0/8\"]\n[[sn.topic]]\nid = 7\nname = \"a/b\"\n");
    let settings = parse(&all).unwrap();
    assert_eq!(settings.sn.predefined()[&7], "a/b".into());
    for (lines, key) in [
        (sn(""), "sn: has an address but answers nobody"),
        (
            sn("subnets = [\"0.0.0.0/0\"]"),
            "sn.subnets[0]: 0.0.0.0/0 is everybody",
        ),
        (all.replace("id = 7", "id = 0"), "sn.topic[0]: 0 is no id"),
        (
            all.replace("a/b", "a/#"),
            "sn.topic[0]: \"a/#\" is no topic",
        ),
        (
            format!("{all}[[sn.topic]]\nid = 7\nname = \"c\"\n"),
            "sn.topic[1]: the id 7 is above, too",
        ),
        (all.replace("[[sn", "clients = 0\n[[sn"), "sn.clients: is 0"),
        (
            "[delivery]\naccelerate = \"/run/a\"\n".into(),
            "delivery.accelerate: needs sn.address or udp.address",
        ),
        (
            all.replace("[[sn", "advertise_to = \"[::1]:1884\"\n[[sn"),
            "sn.advertise_to: must be of IPv4, as sn.address is",
        ),
    ] {
        let error = said(&lines);
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn a_gateway_has_an_upstream_and_sensors_and_opens_no_listener() {
    let sn = "[sn]\naddress = \"0.0.0.0:1884\"\nsubnets = [\"10.0.0.0/8\"]\n";
    let upstream = |lines: &str| format!("{sn}[upstream]\nurl = \"mqtt://u@b\"\n{lines}");
    let settings = parse(&upstream("mode = \"transparent\"")).unwrap();
    assert!(settings.upstream.is_transparent() && settings.open_listeners().is_empty());
    assert!(settings.warnings().is_empty());
    let named = format!("[[listener]]\naddress = \"127.0.0.1:1\"\n{}", upstream(""));
    assert!(parse(&named).unwrap().warnings()[0].starts_with("listener: none is opened"));
    for (text, key) in [
        (
            upstream("").replace(sn, ""),
            "upstream.url: a gateway needs [sn]",
        ),
        (upstream("client = \"\""), "upstream.client: is empty"),
        (
            upstream("password_file = \"x\"").replace("u@", ""),
            "upstream.password_file: is of nobody",
        ),
        (
            upstream("").replace("mqtt:", "http:"),
            "is no address of a broker",
        ),
        (
            upstream("certificate = \"x\"").replace("mqtt:", "mqtts:"),
            "upstream.certificate: certificate and key belong together",
        ),
        (
            upstream("key = \"x\"").replace("mqtt:", "mqtts:"),
            "upstream.certificate: certificate and key belong together",
        ),
        (
            upstream("certificate = \"x\"\nkey = \"x\""),
            "upstream.certificate: is shown over TLS only",
        ),
    ] {
        assert!(said(&text).contains(key), "{}", said(&text));
    }
}
