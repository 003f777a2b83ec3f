//! What is kept, in plain types.

use std::fmt;
use std::sync::Arc;

/// A message as it is kept: once, however many queues hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The topic it was published to.
    pub topic: Arc<str>,
    /// The application message.
    pub payload: Arc<[u8]>,
    /// Octets of the properties that are forwarded unchanged; empty for MQTT 3.1.1.
    pub properties: Arc<[u8]>,
    /// When it expires, in Unix seconds; 0: never. In a will: seconds after its publication.
    pub expiry: u64,
    /// The quality of service it was published with.
    pub qos: u8,
}

/// A will message and when to publish it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// What is published.
    pub message: Arc<Message>,
    /// Whether it is retained.
    pub retain: bool,
    /// Will delay interval in seconds.
    pub delay: u32,
}

/// The state of a session besides its subscriptions and messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Session expiry interval in seconds; `u32::MAX`: never.
    pub expiry: u32,
    /// When the connection ended, in Unix seconds; 0: it is connected.
    pub disconnected_at: u64,
    /// The user who owns the session, if the client gave a name.
    pub user: Option<Arc<str>>,
    /// The will that is still to be published.
    pub will: Option<Will>,
}

/// One thing that changed. Changes take effect in the order in which they are handed over.
#[derive(Clone, Debug)]
pub enum Change {
    /// A session began or its state changed; its subscriptions and messages stay.
    Session {
        /// The client identifier.
        client: Arc<str>,
        /// Its new state.
        session: Session,
    },
    /// A session ended, with its subscriptions, queued messages and received identifiers.
    SessionGone {
        /// The client identifier.
        client: Arc<str>,
    },
    /// A subscription began or has new options; then it keeps its place in the order.
    Subscribe {
        /// The client identifier.
        client: Arc<str>,
        /// The topic filter, with `$share/...` where it is shared.
        filter: Arc<str>,
        /// The subscription options as in SUBSCRIBE.
        options: u8,
        /// The subscription identifier; 0: none.
        identifier: u32,
    },
    /// A subscription ended.
    Unsubscribe {
        /// The client identifier.
        client: Arc<str>,
        /// The topic filter.
        filter: Arc<str>,
    },
    /// The octets of a message, in the same submission as its first [`Change::Queue`], before it.
    /// A message that no queue holds at the end of its submission is not kept.
    Message {
        /// A number that no kept message has.
        message: u64,
        /// The message.
        body: Arc<Message>,
    },
    /// A message enters a client's queue.
    Queue {
        /// The client identifier.
        client: Arc<str>,
        /// The place in this client's queue; no other message of the queue has it.
        place: u64,
        /// The number of the message.
        message: u64,
        /// The quality of service of this delivery.
        qos: u8,
        /// Whether it is sent with the RETAIN flag.
        retain: bool,
        /// The subscription identifiers to send with it.
        subscription_ids: Arc<[u32]>,
    },
    /// A queued message has a packet identifier now, or came further in its exchange.
    InFlight {
        /// The client identifier.
        client: Arc<str>,
        /// The place in this client's queue.
        place: u64,
        /// The packet identifier.
        id: u16,
        /// How far the exchange is: the caller's numbers.
        state: u8,
    },
    /// A queued message was delivered or dropped.
    Done {
        /// The client identifier.
        client: Arc<str>,
        /// The place in this client's queue.
        place: u64,
    },
    /// A QoS 2 message came from the client; its PUBREL has not come.
    Received {
        /// The client identifier.
        client: Arc<str>,
        /// The packet identifier.
        id: u16,
    },
    /// The PUBREL came.
    Released {
        /// The client identifier.
        client: Arc<str>,
        /// The packet identifier.
        id: u16,
    },
    /// A topic has another retained message, or none.
    Retain {
        /// The topic.
        topic: Arc<str>,
        /// The message; `None`: none.
        message: Option<Arc<Message>>,
    },
}

/// What a store held when it was opened.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The sessions, by client identifier.
    pub sessions: Vec<KeptSession>,
    /// The retained messages, by topic.
    pub retained: Vec<(Arc<str>, Arc<Message>)>,
    /// A number above those of all kept messages.
    pub next_message: u64,
}

/// A session with all that belongs to it.
#[derive(Clone, Debug)]
pub struct KeptSession {
    /// The client identifier.
    pub client: Arc<str>,
    /// Its state.
    pub session: Session,
    /// Its subscriptions, oldest first.
    pub subscriptions: Vec<KeptSubscription>,
    /// Its queued and in-flight messages, lowest place first.
    pub queue: Vec<KeptEntry>,
    /// Identifiers of QoS 2 messages that came and were not released, lowest first.
    pub received: Vec<u16>,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSubscription {
    /// The topic filter.
    pub filter: Arc<str>,
    /// The subscription options.
    pub options: u8,
    /// The subscription identifier; 0: none.
    pub identifier: u32,
    /// Rises over all sessions in the order in which the subscriptions began.
    pub order: u64,
}

/// A queued or in-flight message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEntry {
    /// The place in the queue.
    pub place: u64,
    /// The number of the message.
    pub message: u64,
    /// The message; entries with the same number share it.
    pub body: Arc<Message>,
    /// The quality of service of this delivery.
    pub qos: u8,
    /// Whether it is sent with the RETAIN flag.
    pub retain: bool,
    /// The subscription identifiers to send with it.
    pub subscription_ids: Arc<[u32]>,
    /// Packet identifier and state, once it was sent.
    pub in_flight: Option<(u16, u8)>,
}

/// Why a store cannot be opened or was not closed well: a sentence with the path.
#[derive(Clone, Debug)]
pub enum Error {
    /// Another process (or this one) has the directory's store open.
    Locked(String),
    /// The file system does not let us.
    Io(String),
    /// There is no room on the disk to make or repair the file.
    Full(String),
    /// The file is not what we wrote. It was left as it is.
    Damaged(String),
    /// The file is of a newer version of this program. It was left as it is.
    Newer(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Locked(text) | Self::Io(text) | Self::Full(text) => text,
            Self::Damaged(text) | Self::Newer(text) => text,
        })
    }
}

impl std::error::Error for Error {}

/// Why changes are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room on the disk.
    Full,
    /// Something of the submission names a session or message that is not kept, or a number that
    /// is taken: that had no effect, the rest is kept.
    Wrong(String),
    /// The disk failed, or the file was damaged under us. Whether the changes took effect shows only
    /// when the file can be read again.
    Failed(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => out.write_str("no room on the disk"),
            Self::Wrong(text) | Self::Failed(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for Refused {}
