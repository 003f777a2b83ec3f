//! Copies messages on their way to a broker of MQTT-SN or mqtt-udp straight to its subscribers: the
//! controller that decides which messages are copied to whom, data planes, and the program.

mod clients;
pub mod clock;
pub mod controller;
pub mod driver;
pub mod feed;
#[cfg(feature = "kernel")]
pub mod kernel;
#[cfg(feature = "kernel")]
pub mod neighbours;
pub mod options;
pub mod packet;
mod pings;
pub mod plane;
pub mod program;
pub mod proxy;
pub mod reason;
mod rulebook;
pub mod rules;
mod session;
pub mod settings;
pub mod status;
#[cfg(feature = "kernel")]
pub mod switch;
pub mod table;
