//! Connections that do nothing: what memory each takes of the broker.

use crate::protocol::connection::Connection;
use crate::results::report::names;
use crate::run::contest::Run;
use crate::system::process::Process;
use mqtick_net::failure::{Failure, Outcome};

names! {
    RSS "rss_octets" "resident memory a connection (RSS)" "octets";
    PSS "pss_octets" "the same, shared pages by share (PSS)" "octets";
    ALL "pss_all_octets" "PSS a connection, over all steps" "octets";
    BEFORE "pss_before_kib" "PSS before the first connection" "KiB";
}

const STEPS: usize = 10;
const NOTES: [&str; 2] = [
    "a broker that has had as many connections before uses their memory again: start it afresh.",
    "the kernel's memory for the sockets is not the process's, and not in these figures.",
];

/// Measures, in steps of a tenth of the connections.
///
/// # Errors
/// What stopped it; the report has what was measured until then.
pub fn run(run: &mut Run<'_>) -> Outcome<()> {
    let options = run.options;
    run.descriptors(options.connections)?;
    let target = options.target()?;
    let none = || Failure::Use("idle measures a process: name it by --broker-pid.".to_owned());
    let process = Process::new(options.broker_pid.ok_or_else(none)?)?;
    let mut connections: Vec<Connection> = Vec::with_capacity(options.connections);
    let start = process.memory()?;
    let mut before = start;
    run.report.add(BEFORE, "broker", start.pss as f64 / 1024.0);
    for step in 1..=STEPS {
        let goal = options.connections * step / STEPS;
        let opened = goal - connections.len();
        while connections.len() < goal {
            run.stop.check()?;
            let number = connections.len();
            if number.is_multiple_of(100) {
                run.progress(&format!("{number} of {} connections", options.connections));
            }
            connections.push(Connection::open(&target, &format!("idle{number}"), number)?);
        }
        let now = process.memory()?;
        let each =
            |now: u64, before: u64, count: usize| (now as f64 - before as f64) / count as f64;
        run.report
            .add(RSS, "broker", each(now.rss, before.rss, opened));
        run.report
            .add(PSS, "broker", each(now.pss, before.pss, opened));
        if step == STEPS {
            run.report
                .add(ALL, "broker", each(now.pss, start.pss, goal));
        }
        before = now;
    }
    for note in NOTES {
        run.report.note(note.to_owned());
    }
    Ok(())
}
