//! The contents of a store.

use std::fmt;
use std::sync::Arc;

/// A message. It is kept once, even if several queues hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The topic it was published to.
    pub topic: Arc<str>,
    /// The application message.
    pub payload: Arc<[u8]>,
    /// Octets of the properties that are forwarded unchanged; empty for MQTT 3.1.1.
    pub properties: Arc<[u8]>,
    /// When it expires, in Unix seconds; 0: never. For a will: in seconds after its publication.
    pub expiry: u64,
    /// The quality of service it was published with.
    pub qos: u8,
}

/// A will message and when to publish it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// The message.
    pub message: Arc<Message>,
    /// Whether it is retained.
    pub retain: bool,
    /// The will delay interval, in seconds.
    pub delay: u32,
}

/// The state of a session without its subscriptions and messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The session expiry interval, in seconds; `u32::MAX`: never.
    pub expiry: u32,
    /// When the connection ended, in Unix seconds; 0: it is connected.
    pub disconnected_at: u64,
    /// The user name of the session's owner, if there is one.
    pub user: Option<Arc<str>>,
    /// The will that may still have to be published.
    pub will: Option<Will>,
}

/// A change. Changes take effect in the order in which they are submitted.
#[derive(Clone, Debug)]
pub enum Change {
    /// A session begins or changes its state; its subscriptions and messages stay.
    Session {
        /// The client identifier.
        client: Arc<str>,
        /// Its new state.
        session: Session,
    },
    /// A session ends, with its subscriptions, queued messages and received identifiers.
    SessionGone {
        /// The client identifier.
        client: Arc<str>,
    },
    /// A subscription begins, or gets new options and keeps its place in the order.
    Subscribe {
        /// The client identifier.
        client: Arc<str>,
        /// The topic filter, with `$share/...` if it is shared.
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
    /// The contents of a message. Has to precede its first [`Change::Queue`] in the same
    /// submission. A message that no queue holds at the end of its submission is not kept.
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
        /// The place in this client's queue, unique there.
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
    /// A queued message gets a packet identifier, or its exchange has proceeded.
    InFlight {
        /// The client identifier.
        client: Arc<str>,
        /// The place in this client's queue.
        place: u64,
        /// The packet identifier.
        id: u16,
        /// The state of the exchange, a number of the caller.
        state: u8,
    },
    /// A queued message was delivered or dropped.
    Done {
        /// The client identifier.
        client: Arc<str>,
        /// The place in this client's queue.
        place: u64,
    },
    /// A QoS 2 message came from the client, but no PUBREL yet.
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
    /// The retained message of a topic is replaced or removed.
    Retain {
        /// The topic.
        topic: Arc<str>,
        /// The message; `None`: none.
        message: Option<Arc<Message>>,
    },
}

/// The contents of a store when it was opened.
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
    /// Increases, over all sessions, in the order in which the subscriptions began.
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

/// Why a store cannot be opened or closed properly: a sentence with the path.
#[derive(Clone, Debug)]
pub enum Error {
    /// Another process (or this one) has the directory's store open.
    Locked(String),
    /// The file system refuses the access.
    Io(String),
    /// There is no room on the disk to make or repair the file.
    Full(String),
    /// The file is damaged or of another program. It was left as it is.
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
    /// A change of the submission names a session or message that is not kept, or a number that is
    /// taken. That change had no effect; the others are kept.
    Wrong(String),
    /// The disk failed, or the file was damaged meanwhile. Whether the changes took effect is known
    /// only when the file can be read again.
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

/// Called in the writer thread once the changes are on disk or refused.
pub type Answer = Box<dyn FnOnce(Result<(), Refused>) + Send>;
