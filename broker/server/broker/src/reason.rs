//! Reason codes of MQTT 5 (clause 2.4).

/// A normal DISCONNECT, but the will is to be published.
pub const WITH_WILL: u8 = 0x04;
/// No client is subscribed.
pub const NO_SUBSCRIBERS: u8 = 0x10;
/// There was no such subscription.
pub const NO_SUBSCRIPTION: u8 = 0x11;
/// Something that no other code stands for.
pub const UNSPECIFIED: u8 = 0x80;
/// A version of MQTT that is not supported.
pub const VERSION: u8 = 0x84;
/// A violation of the protocol.
pub const PROTOCOL: u8 = 0x82;
/// User name or password is wrong.
pub const NOT_RIGHT: u8 = 0x86;
/// Not allowed.
pub const NOT_AUTHORIZED: u8 = 0x87;
/// The broker is too busy.
pub const BUSY: u8 = 0x89;
/// The broker ends.
pub const SHUTTING_DOWN: u8 = 0x8B;
/// The authentication method is not supported.
pub const METHOD: u8 = 0x8C;
/// The client was not heard for 1.5 times its keep-alive.
pub const KEEP_ALIVE: u8 = 0x8D;
/// The client connected again.
pub const TAKEN_OVER: u8 = 0x8E;
/// The filter is not well formed.
pub const FILTER: u8 = 0x8F;
/// The topic's name cannot be used.
pub const TOPIC: u8 = 0x90;
/// No message has this identifier.
pub const NO_IDENTIFIER: u8 = 0x92;
/// The topic alias is not valid.
pub const ALIAS: u8 = 0x94;
/// Retained messages are not supported.
pub const NO_RETAIN: u8 = 0x9A;
/// A limit of the configuration is reached.
pub const QUOTA: u8 = 0x97;
/// The client identifier is not allowed.
pub const CLIENT: u8 = 0x85;
