//! Gives any octets to the readers of the store's rows. A value that a reader accepts must not be
//! changed by writing and reading it.

use crate::record::{Record, read_message, read_session, write_message, write_session};

/// Fails if something panics, or is changed by writing and reading.
pub fn check(octets: &[u8]) {
    let mut out = Vec::new();
    if let Some(record) = Record::read(octets) {
        record.write(&mut out);
        let again = Record::read(&out);
        assert!(
            out.len() <= octets.len() && same(&again, &record),
            "{again:?} is not {record:?}"
        );
    }
    out.clear();
    if let Some((number, session)) = read_session(octets) {
        write_session(&mut out, number, &session);
        assert_eq!(read_session(&out), Some((number, session)));
        assert!(out.len() <= octets.len());
    }
    out.clear();
    if let Some(message) = read_message(octets) {
        write_message(&mut out, &message);
        assert_eq!(read_message(&out), Some(message));
        assert!(out.len() <= octets.len());
    }
}

fn same(again: &Option<Record>, record: &Record) -> bool {
    again.as_ref() == Some(record)
}
