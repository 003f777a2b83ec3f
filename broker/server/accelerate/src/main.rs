//! The program `mqtick-accelerate`.

use mqtick_accelerate::failure::Failure;
use mqtick_accelerate::options::Options;
use mqtick_accelerate::program::run;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Options::parse(std::env::args_os().skip(1)).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("mqtick-accelerate: {failure}");
            ExitCode::from(match failure {
                Failure::Use(_) => 2,
                Failure::Failed(_) => 1,
            })
        }
    }
}
