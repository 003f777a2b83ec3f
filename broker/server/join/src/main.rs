//! The program `mqtick-join`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mqtick_join::program::main()
}
