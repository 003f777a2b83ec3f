//! MQTT-SN 1.2 (`broker/spec/mqtt-sn.md`): its codec and a gateway, without sockets, clocks and
//! topic trees.
//!
//! The [`Engine`] delivers messages, so that clients over MQTT-SN and over MQTT share one tree.

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
