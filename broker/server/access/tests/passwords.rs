//! Password files of mosquitto_passwd, and files that have to be refused.
#![allow(clippy::unwrap_used)]

use mqtick_access::{Error, Passwords};

const HASH_OF_12_OCTETS_SALT: &str = "$7$101$MDEyMzQ1Njc4OWFi$";

fn parse(text: &str) -> Result<Passwords, Error> {
    Passwords::parse(text)
}

fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn hash() -> String {
    format!("{HASH_OF_12_OCTETS_SALT}{}==", "A".repeat(86))
}

#[test]
fn passwords_that_mosquitto_passwd_hashed_are_right_and_no_others() {
    let long = "x".repeat(300);
    let written: [(&str, &[(&str, &str)]); 4] = [
        (
            include_str!("files/pbkdf2.passwd"),
            &[
                ("alice", "correct horse"),
                ("bob", "pässwörd"),
                ("with blank", &long),
            ],
        ),
        (
            include_str!("files/sha512.passwd"),
            &[("alice", "correct horse"), ("bob", "pässwörd")],
        ),
        (
            include_str!("files/mixed.passwd"),
            &[
                ("alice", "correct horse"),
                ("with blank", &long),
                ("old", "from 1.6"),
            ],
        ),
        (
            include_str!("files/upgraded.passwd"),
            &[("alice", "plain one"), ("bob", "plain two")],
        ),
    ];
    for (text, users) in written {
        let passwords = parse(text).unwrap();
        for (user, password) in users {
            let octets = password.as_bytes();
            assert!(passwords.check(user, octets), "{user} of {text}");
            assert!(!passwords.check(user, b"wrong"));
            assert!(!passwords.check(user, b""));
            assert!(
                !passwords.check(user, &[octets, b"\0"].concat()),
                "a NUL is no end"
            );
            assert!(!passwords.check(&user.to_uppercase(), octets));
            assert!(!passwords.check("nobody", octets));
        }
    }
}

#[test]
fn an_unknown_user_has_no_password_not_even_that_of_the_stand_in() {
    for text in [
        "",
        include_str!("files/sha512.passwd"),
        include_str!("files/pbkdf2.passwd"),
    ] {
        for password in [&b""[..], b"\0", b"alice"] {
            assert!(!parse(text).unwrap().check("nobody", password));
        }
    }
}

#[test]
fn comments_blank_lines_crlf_and_a_missing_last_newline_do_not_matter() {
    let line = include_str!("files/pbkdf2.passwd").lines().next().unwrap();
    for text in [
        format!("# staff\n\n{line}"),
        format!("{line}\r\n"),
        format!("\r\n# staff\r\n{line}\r\n\r\n"),
        format!("   \n{line}  \n"),
    ] {
        assert!(
            parse(&text).unwrap().check("alice", b"correct horse"),
            "{text:?}"
        );
    }
}

const ARGON2: &str = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ\
    $CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";

/// A line with other costs.
fn argon2(costs: &str) -> String {
    format!("bob:{}", ARGON2.replace("m=65536,t=2,p=1", costs))
}

/// Vectors of the reference implementation's own test (phc-winner-argon2, src/test.c, version 0x13).
#[test]
fn passwords_that_the_reference_implementation_of_argon2id_hashed_are_right_and_no_others() {
    let quick = "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ\
        $bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc";
    let pbkdf2 = hash();
    let users = format!("alice:{ARGON2}\nbob:{quick}\ncarol:{pbkdf2}\n");
    let passwords = parse(&users).unwrap();
    assert!(passwords.check("alice", b"password"));
    assert!(passwords.check("bob", b"password"));
    for wrong in ["passwore", "", "password\0"] {
        assert!(!passwords.check("bob", wrong.as_bytes()), "{wrong:?}");
    }
    assert!(!passwords.check("carol", b"password"));
    assert!(!passwords.check("dave", b"password"));
}

#[test]
fn an_empty_file_lets_nobody_in() {
    assert!(!parse("").unwrap().check("alice", b"x"));
}

#[test]
fn what_cannot_be_used_is_refused_with_its_line_and_a_sentence() {
    let hash = hash();
    let good = format!("alice:{hash}\n");
    parse(&good).unwrap();
    let digits = hash.trim_start_matches(HASH_OF_12_OCTETS_SALT);
    for (line, why) in [
        ("bob".to_string(), "no `:`"),
        (format!(":{hash}"), "name is empty"),
        (format!(" bob:{hash}"), "blank at its end"),
        (format!("bob :{hash}"), "blank at its end"),
        ("bob:".into(), "has no password"),
        ("bob:secret".into(), "mosquitto_passwd -U"),
        (
            format!("bob:{}", hash.replacen('7', "5", 1)),
            "not read here",
        ),
        ("bob:$7$101".into(), "not all its parts"),
        ("bob:$6$MDEy".into(), "not all its parts"),
        (format!("bob:{hash}$AAAA"), "not all its parts"),
        (
            "bob:$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ".into(),
            "not all its parts",
        ),
        (argon2("m=65537,t=1,p=1"), "m=65536"),
        (argon2("m=4096,t=11,p=1"), "m=65536"),
        (argon2("m=7,t=1,p=1"), "m=65536"),
        (argon2("m=4096,t=1,p=0"), "m=65536"),
        (argon2("m=4096,t=1"), "m=65536"),
        (argon2("m=4096,t=1,p=1,keyid=1"), "m=65536"),
        (
            argon2("m=4096,t=1,p=1").replace("c29tZXNhbHQ", "c29tZQ"),
            "8 to 1024",
        ),
        (
            argon2("m=4096,t=1,p=1").replace("FdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", ""),
            "64 octets",
        ),
        (format!("bob:$7$0$MDEy${digits}"), "1 to 1000000"),
        (format!("bob:$7$-1$MDEy${digits}"), "1 to 1000000"),
        (format!("bob:$7$1000000000$MDEy${digits}"), "1 to 1000000"),
        (
            format!("bob:$7$99999999999999999999$MDEy${digits}"),
            "1 to 1000000",
        ),
        (format!("bob:$7$1x$MDEy${digits}"), "1 to 1000000"),
        (format!("bob:$7$101$$${digits}"), "not all its parts"),
        (format!("bob:$7$101$${digits}"), "salt"),
        (format!("bob:$7$101$!!!!${digits}"), "salt"),
        (format!("bob:$6${}${digits}", "A".repeat(4096)), "salt"),
        ("bob:$7$101$MDEy$!!!!".into(), "64 octets"),
        ("bob:$7$101$MDEy$AAAA".into(), "64 octets"),
        (format!("bob:{}", hash.trim_end_matches('=')), "64 octets"),
        (format!("bob:{hash}:1000"), "64 octets"),
        (format!("alice:{hash}"), "above, too"),
        (format!("b\0b:{hash}"), "U+0000"),
        (format!("b\tb:{hash}"), "tab"),
        (
            format!("bob:{}", "A".repeat(1 << 20)),
            "mosquitto_passwd -U",
        ),
        (format!("{}:{hash}", "b".repeat(1 << 20)), "too long"),
    ] {
        let said = refused(&format!("{good}{line}\n"));
        assert!(
            said.starts_with("line 2: ") && said.contains(why),
            "{line:.80}: {said}"
        );
        assert!(said.len() < 300 && !said.contains("secret"), "{said:.400}");
    }
}

#[test]
fn what_is_printed_for_debugging_has_no_hash_in_it() {
    let passwords = parse(include_str!("files/pbkdf2.passwd")).unwrap();
    assert_eq!(format!("{passwords:?}"), "Passwords of 3 users");
}

#[test]
fn passwords_can_be_checked_on_another_thread() {
    fn sendable<T: Send + Sync + 'static>() {}
    sendable::<Passwords>();
}

#[test]
fn damaged_files_are_read_or_refused_and_a_refusal_is_short() {
    let good = include_str!("files/mixed.passwd");
    for at in 0..good.len() {
        for octet in [0, b'\n', b' ', b'#', b':', b'$', b'=', b'9', b'-', 0xff] {
            let mut octets = good.as_bytes().to_vec();
            octets[at] = octet;
            if let Err(error) = parse(&String::from_utf8_lossy(&octets)) {
                assert!(error.line <= 5 && error.to_string().len() < 300);
            }
        }
    }
}
