//! Copies the publishes of an MQTT-SN broker to its subscribers before they reach it: who gets what,
//! when that may be, and the program around it.

#[cfg(feature = "kernel")]
pub mod kernel;
pub mod plane;
pub mod rules;
