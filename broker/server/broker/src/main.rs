//! The program `mqtick-broker`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mqtick_broker::program::main()
}
