//! What infeed does on a GPU, beside what the GPU can do: one line of JSON for each figure.
//!
//! ```text
//! cargo bench --bench gpu [-- SECTION…] [--quick] [--photos DIR] [--workers 1,4,16]
//!                                       [--ways auto,'cpu + hardware'] [--list]
//!
//! machine     GPU, driver, nvJPEG, engines, link        bounds    copies to, from and within the device
//! kernels     the kernels against these                 engines   nvJPEG's engines alone, by batch and handles
//! gpu_hybrid  batches on the GPU's cores, Huffman too   hybrid    nvJPEG's hybrid decoder by streams
//! cpu         decode and resample on threads alone      photos    files to batches, by routing and workers
//! recipes     augmentation, mixing, views               memory    CIFAR and cells from memory
//! ```
//!
//! `--list` names the sections and measures nothing; `--ways` names who decodes in `photos`, by the beginnings of
//! their names; `bare` is the engines and the CPU alone.
//!
//! Each figure: one run to warm up, then several; median, lowest and highest. Without a GPU it says so and exits with 0.
//! `integration/gpu/run.py` runs every section in a process of its own and makes a report. On the mock GPU of the tests
//! all sizes are tiny and the figures mean nothing.

#![allow(clippy::print_stdout, reason = "figures go to stdout")]

#[cfg(target_os = "linux")]
mod run;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    run::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    println!("no GPU, so nothing to measure: infeed uses GPUs on Linux only");
    ExitCode::SUCCESS
}
