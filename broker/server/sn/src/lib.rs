//! MQTT-SN 1.2 (`broker/spec/mqtt-sn.md`): its octets, and what a gateway does with them, without
//! sockets, clocks and topic trees.
//!
//! Who gets a message is the engine's affair, so that clients over MQTT-SN and over MQTT are in one
//! tree: see [`Engine`].

#![forbid(unsafe_code)]

mod client;
mod codec;
mod gateway;
mod names;

pub use client::{Address, Client, DATAGRAM, Datagrams, Delivered, Keep, NODE, Seat, lock};
pub use codec::{
    Code, Error, Filter, Forwarded, MARK, Message, Qos, Topic, Will, decode, encode,
    encode_forwarded, publish_flags,
};
pub use gateway::{Answer, Came, Count, Engine, Entrance, Gateway, NAMES, Publication, Settings};
