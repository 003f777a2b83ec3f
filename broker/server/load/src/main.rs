//! The program `mqtick-load`.

use mqtick_load::commands::{fanout, idle, limit, pairs, run as scenario};
use mqtick_load::floor;
use mqtick_load::remote::agent;
use mqtick_load::results::report::Report;
use mqtick_load::run::contest::Run;
use mqtick_load::settings::command::Command;
use mqtick_load::settings::help::HELP;
use mqtick_load::settings::options::Options;
use mqtick_load::system::stop::Stop;
use mqtick_net::failure::{Failure, Outcome};
use mqtick_net::process::{end, print};
use std::io::IsTerminal;
use std::net::SocketAddrV4;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = Options::parse(std::env::args_os().skip(1)).and_then(|options| run(&options));
    end("mqtick-load", result)
}

fn run(options: &Options) -> Outcome<()> {
    match options.command {
        Command::Help => print(HELP),
        Command::Version => print(concat!("mqtick-load ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Floor => serve(options),
        Command::Agent => agent::run(),
        _ => measure(options),
    }
}

fn measure(options: &Options) -> Outcome<()> {
    let stop = Stop::new()?;
    let mut report = Report::new(options.command.name(), options.parameters());
    let mut run = Run {
        options,
        stop: &stop,
        report: &mut report,
    };
    let result = match options.command {
        Command::Limit => limit::run(&mut run),
        Command::Run => scenario::run(&mut run),
        Command::Pairs => pairs::run(&mut run),
        Command::Fanout => fanout::run(&mut run),
        _ => idle::run(&mut run),
    };
    run.progress("");
    // The same Ctrl-C may have ended the broker, and so caused the failure.
    let result = match result {
        Err(Failure::Failed(_)) if stop.asked() => Err(Failure::Stopped),
        other => other,
    };
    if !report.is_empty() {
        print(&if options.json {
            format!("{}\n", report.json(result.is_ok()))
        } else {
            report.text()
        })?;
    }
    result
}

fn serve(options: &Options) -> Outcome<()> {
    // With --until-eof the parent ends us: a Ctrl-C is meant for the parent.
    let _deaf = options.until_eof.then(Stop::new).transpose()?;
    let at = SocketAddrV4::new(options.address, options.port);
    let port = match options.udp {
        true => floor::udp::serve(at)?,
        false => floor::tcp::serve(at, options.threads)?,
    };
    print(&format!("{}:{port}\n", at.ip()))?;
    if !options.until_eof && std::io::stdin().is_terminal() {
        eprintln!("Ctrl-D or Ctrl-C ends it.");
    }
    floor::until_eof();
    Ok(())
}
