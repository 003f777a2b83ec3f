//! What is to be measured: the command line, and files of scenarios.

pub mod command;
pub mod file;
pub mod help;
pub mod mqttloader;
pub mod options;
pub mod parse;
pub mod scenario;
