//! The program: see `lib.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    infeed_cli::main()
}
