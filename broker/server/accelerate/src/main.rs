//! The program `mqtick-accelerate`.

use mqtick_accelerate::options::Options;
use mqtick_accelerate::program::{PROGRAM, run};
use mqtick_net::failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse(std::env::args_os().skip(1));
    let done = options.and_then(run).map_err(|failure| match failure {
        Failure::Use(text) => Failure::Use(format!("{text} See --help.")),
        other => other,
    });
    mqtick_net::process::end(PROGRAM, done)
}
