//! broker
pub mod settings;
