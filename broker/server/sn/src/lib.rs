//! MQTT-SN 1.2 (`broker/spec/mqtt-sn.md`): its octets, and what a gateway does with them, without
//! sockets, clocks and topic trees.

#![forbid(unsafe_code)]

mod codec;

pub use codec::{
    Code, Error, Filter, Forwarded, Message, Qos, Topic, Will, decode, encode, encode_forwarded,
};
