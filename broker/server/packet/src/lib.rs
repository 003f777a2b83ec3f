//! Decodes and encodes packets of MQTT 3.1.1 and 5. Packets borrow their octets; nothing is copied.
//!
//! It decodes packets of clients, for a broker, and packets of brokers, for a load generator. The
//! caller has to check which packets a peer may send, and when; also all that depends on earlier
//! packets or on the peer: topic aliases, packet identifiers in use, an empty client identifier
//! without a clean session ([MQTT-3.1.3-8]), a subscription identifier in a client's PUBLISH
//! ([MQTT-3.3.4-6]).
//!
//! Clause numbers are those of MQTT 5; where 3.1.1 differs, the text says so.

mod decode;
mod encode;
mod frame;
mod property;
mod read;
mod types;
mod write;

pub use decode::{
    Ack, Auth, Connack, Connect, Disconnect, Filter, Filters, Packet, Publish, Suback, Subscribe,
    Unsuback, Unsubscribe, UnsubscribeFilters, Will, decode, decode_publish,
};
pub use encode::{
    ConnackProperties, ConnectOut, Outgoing, WillOut, ack, connack, connect, disconnect, pingreq,
    pingresp, publish, publish_length, suback, subscribe, subscribe_as, unsuback, unsubscribe,
};
pub use frame::{Frame, frame};
pub use property::{Properties, Property, PropertyIter};
pub use types::{AckKind, Error, Qos, Version};

/// The octets of the longest possible packet, including its fixed header.
pub const MAXIMUM_LENGTH: usize = 1 + 4 + read::MAXIMUM_VARIABLE as usize;
