//! What the kernel knows: clocks, stamps, processes, signals.

pub mod clocks;
pub mod process;
pub mod stamps;
pub mod stop;
