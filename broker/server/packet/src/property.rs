//! The properties of MQTT 5 (2.2.2), their types, and the packets that may have them.

use crate::read::Reader;
use crate::types::Error;
use crate::write;

/// The packets that may have a property: bit n is for packet type n, bit 0 for a will.
type Places = u16;

pub(crate) const WILL: Places = 1;
pub(crate) const CONNECT: Places = 1 << 1;
pub(crate) const CONNACK: Places = 1 << 2;
pub(crate) const PUBLISH: Places = 1 << 3;
pub(crate) const ACK: Places = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;
pub(crate) const SUBSCRIBE: Places = 1 << 8;
pub(crate) const SUBACK: Places = 1 << 9;
pub(crate) const UNSUBSCRIBE: Places = 1 << 10;
pub(crate) const UNSUBACK: Places = 1 << 11;
pub(crate) const DISCONNECT: Places = 1 << 14;
pub(crate) const AUTH: Places = 1 << 15;

const SUBACKS: Places = SUBACK | UNSUBACK;
const EVERYWHERE: Places = Places::MAX;

/// Makes `Property` and the getters of `Properties` from a table. A row is: identifier,
/// variant(type), how it is read and written, the getter's name, and the packets that may have it.
macro_rules! properties {
    ($($(#[$doc:meta])+ $id:literal $variant:ident($type:ty) $form:ident $name:ident: $places:expr;)+) => {
        /// One property.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Property<'a> {
            $($(#[$doc])+ $variant($type),)+
        }

        impl<'a> Property<'a> {
            fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
                match from.variable()? {
                    $($id => from.$form().map(Self::$variant),)+
                    _ => Err(Error::Malformed("an unknown property")),
                }
            }

            /// Appends it with its identifier, as `Outgoing::forwarded` needs it.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(value) => {
                        out.push($id);
                        write::$form(out, *value);
                    })+
                }
            }

            /// Its identifier, and the packets that may have it.
            fn row(&self) -> (u8, Places) {
                match self {
                    $(Self::$variant(_) => ($id, $places),)+
                }
            }
        }

        impl<'a> Properties<'a> {
            $(
                $(#[$doc])+
                #[must_use]
                #[inline]
                pub fn $name(&self) -> Option<$type> {
                    if self.seen & 1 << $id == 0 {
                        return None;
                    }
                    self.iter().find_map(|property| match property {
                        Property::$variant(value) => Some(value),
                        _ => None,
                    })
                }
            )+
        }
    };
}

properties! {
    /// Whether the payload is UTF-8 text.
    0x01 PayloadFormat(bool) bool payload_format: PUBLISH | WILL;
    /// The message expiry interval, in seconds.
    0x02 MessageExpiry(u32) u32 message_expiry: PUBLISH | WILL;
    /// The type of the payload, for the application.
    0x03 ContentType(&'a str) string content_type: PUBLISH | WILL;
    /// The topic name for an answer.
    0x08 ResponseTopic(&'a str) topic response_topic: PUBLISH | WILL;
    /// Data that an answer has to contain.
    0x09 CorrelationData(&'a [u8]) binary correlation_data: PUBLISH | WILL;
    /// The identifier of the subscription, or of (the first of) those that matched; never 0.
    0x0B SubscriptionId(u32) variable subscription_id: PUBLISH | SUBSCRIBE;
    /// The session expiry interval, in seconds; `u32::MAX`: never.
    0x11 SessionExpiry(u32) u32 session_expiry: CONNECT | CONNACK | DISCONNECT;
    /// The client identifier that the server has chosen.
    0x12 AssignedClientId(&'a str) string assigned_client_id: CONNACK;
    /// The server's keep-alive in seconds, which replaces the client's.
    0x13 ServerKeepAlive(u16) u16 server_keep_alive: CONNACK;
    /// The name of the method of enhanced authentication.
    0x15 AuthenticationMethod(&'a str) string authentication_method: CONNECT | CONNACK | AUTH;
    /// The data of that method.
    0x16 AuthenticationData(&'a [u8]) binary authentication_data: CONNECT | CONNACK | AUTH;
    /// Whether the client wants reason strings and user properties with all packets.
    0x17 RequestProblemInformation(bool) bool request_problem_information: CONNECT;
    /// Seconds from the end of the connection to the will's publication.
    0x18 WillDelay(u32) u32 will_delay: WILL;
    /// Whether the client wants response information.
    0x19 RequestResponseInformation(bool) bool request_response_information: CONNECT;
    /// The prefix of response topics.
    0x1A ResponseInformation(&'a str) string response_information: CONNACK;
    /// Another server to use.
    0x1C ServerReference(&'a str) string server_reference: CONNACK | DISCONNECT;
    /// A reason in words.
    0x1F ReasonString(&'a str) string reason_string: CONNACK | ACK | SUBACKS | DISCONNECT | AUTH;
    /// How many QoS 1 and 2 messages the sender accepts at once; never 0.
    0x21 ReceiveMaximum(u16) u16 receive_maximum: CONNECT | CONNACK;
    /// The highest topic alias that the sender accepts.
    0x22 TopicAliasMaximum(u16) u16 topic_alias_maximum: CONNECT | CONNACK;
    /// A number that stands for the topic; never 0.
    0x23 TopicAlias(u16) u16 topic_alias: PUBLISH;
    /// The highest QoS that the server accepts: 0 or 1.
    0x24 MaximumQos(u8) u8 maximum_qos: CONNACK;
    /// Whether the server retains messages.
    0x25 RetainAvailable(bool) bool retain_available: CONNACK;
    /// A name and a value for the application; the getter returns the first one.
    0x26 UserProperty((&'a str, &'a str)) pair user_property: EVERYWHERE;
    /// The octets of the longest packet that the sender accepts, with its fixed header; never 0.
    0x27 MaximumPacketSize(u32) u32 maximum_packet_size: CONNECT | CONNACK;
    /// Whether the server accepts filters with wildcards.
    0x28 WildcardAvailable(bool) bool wildcard_available: CONNACK;
    /// Whether the server accepts subscription identifiers.
    0x29 SubscriptionIdsAvailable(bool) bool subscription_ids_available: CONNACK;
    /// Whether the server accepts shared subscriptions.
    0x2A SharedAvailable(bool) bool shared_available: CONNACK;
}

impl Property<'_> {
    /// Checks that the value is in range.
    fn check(&self) -> Result<(), Error> {
        match self {
            Self::SubscriptionId(0) => Err(Error::Protocol("subscription identifier 0")),
            Self::ReceiveMaximum(0) => Err(Error::Protocol("receive maximum 0")),
            Self::MaximumPacketSize(0) => Err(Error::Protocol("maximum packet size 0")),
            Self::TopicAlias(0) => Err(Error::Alias),
            Self::MaximumQos(2..) => Err(Error::Protocol("a maximum QoS above 1")),
            Self::ResponseTopic("") => Err(Error::Protocol("an empty response topic")),
            _ => Ok(()),
        }
    }
}

/// The properties that a server forwards with a message: bit n for identifier n.
const FORWARDED: u64 = 1 << 0x01 | 1 << 0x03 | 1 << 0x08 | 1 << 0x09 | 1 << 0x26;

/// The checked properties of a packet or of a will: each one is allowed there, occurs only once
/// unless the standard allows more, and its value is in range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    octets: Reader<'a>,
    /// The properties that occur: bit n for identifier n.
    seen: u64,
}

impl<'a> Properties<'a> {
    /// Reads the properties of a packet after their length.
    #[inline]
    pub(crate) fn read(from: &mut Reader<'a>, place: Places) -> Result<Self, Error> {
        let length = from.variable()?;
        if length == 0 {
            return Ok(Self::default());
        }
        let octets = Reader(from.take(length as usize)?);
        let seen = check(octets, place)?;
        Ok(Self { octets, seen })
    }

    /// All properties in their order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> PropertyIter<'a> {
        PropertyIter(self.octets)
    }

    /// Appends unchanged the properties that a server must forward with a message: payload format,
    /// content type, response topic, correlation data, user properties in their order
    /// ([MQTT-3.3.2-4], -15, -16, -17, -18, -20).
    pub fn forwarded(&self, out: &mut Vec<u8>) {
        if self.seen & !FORWARDED == 0 {
            return out.extend_from_slice(self.octets.0);
        }
        let mut rest = self.octets;
        loop {
            let before = rest.0;
            let Ok(property) = Property::read(&mut rest) else {
                return;
            };
            let (id, _) = property.row();
            if FORWARDED & 1 << id != 0 {
                let length = before.len() - rest.0.len();
                out.extend_from_slice(before.get(..length).unwrap_or_default());
            }
        }
    }
}

/// Checks properties. Returns which ones occur.
fn check(mut rest: Reader<'_>, place: Places) -> Result<u64, Error> {
    let mut seen = 0_u64;
    while !rest.is_empty() {
        let property = Property::read(&mut rest)?;
        let (id, places) = property.row();
        if places & place == 0 {
            return Err(Error::Malformed(
                "a property that does not belong in this packet",
            ));
        }
        let repeats = match property {
            Property::UserProperty(_) => true,
            Property::SubscriptionId(_) => place == PUBLISH,
            _ => false,
        };
        if seen & 1 << id != 0 && !repeats {
            return Err(Error::Protocol("the same property twice"));
        }
        seen |= 1 << id;
        property.check()?;
    }
    if place == CONNECT && seen & (METHOD | DATA) == DATA {
        // 3.1.2.11.10; for CONNACK the standard does not require this.
        return Err(Error::Protocol("authentication data without a method"));
    }
    Ok(seen)
}

const METHOD: u64 = 1 << 0x15;
const DATA: u64 = 1 << 0x16;

impl<'a> IntoIterator for Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = PropertyIter<'a>;

    fn into_iter(self) -> PropertyIter<'a> {
        self.iter()
    }
}

/// Iterates over the properties of a packet.
#[derive(Clone, Debug)]
pub struct PropertyIter<'a>(Reader<'a>);

impl<'a> Iterator for PropertyIter<'a> {
    type Item = Property<'a>;

    #[inline]
    fn next(&mut self) -> Option<Property<'a>> {
        if self.0.is_empty() {
            None
        } else {
            Property::read(&mut self.0).ok()
        }
    }
}
