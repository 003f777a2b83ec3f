//! The reasons why messages are left to the broker.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::plane::{MOST_COPIES, Refusal};

/// Why a topic of a publisher is not accelerated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`Display` says it")]
pub enum Reason {
    Settling { until_ns: u64 },
    Stranger(SocketAddr),
    TooMany,
    NotDeclared,
    Reserved,
    NameUnknown,
    PublisherUnknown,
    PublisherNotActive,
    PublisherInDoubt,
    Refused,
    NoSubscribers,
    AnswerAwaited(SocketAddr),
    NotActive(SocketAddr),
    NotClean(SocketAddr),
    Kept(Rc<str>),
    OtherQos(SocketAddr),
    Unclear(SocketAddr),
    Unproven(SocketAddr),
    Overdue(SocketAddr),
    InDoubt(SocketAddr),
    Overlap(SocketAddr),
    OtherWay(SocketAddr),
    NoId(SocketAddr),
    PredefinedUnknown(SocketAddr, u16),
    Full,
    Copies,
    Unreachable(SocketAddr),
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full => Self::Full,
            Refusal::Copies => Self::Copies,
            Refusal::Unreachable(who) => Self::Unreachable(who),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settling { .. } => f.write_str(
                "clients may be there that connected before this program began (--settle, --fresh)",
            ),
            Self::Stranger(who) => write!(f, "what {who} is subscribed to was not seen"),
            Self::TooMany => f.write_str("there are more clients than are followed"),
            Self::NotDeclared => f.write_str("not declared free of other subscribers (--only)"),
            Self::Reserved => f.write_str("topics that begin with $ are the broker's"),
            Self::NameUnknown => f.write_str("its name is not known"),
            Self::PublisherUnknown => f.write_str("the publisher's CONNECT was not seen"),
            Self::PublisherNotActive => f.write_str("the publisher is not connected"),
            Self::PublisherInDoubt => {
                f.write_str("the broker has not confirmed lately that it knows the publisher")
            }
            Self::Refused => f.write_str("the broker has refused a publish"),
            Self::NoSubscribers => f.write_str("nobody is subscribed"),
            Self::AnswerAwaited(who) => write!(f, "the broker has not answered {who}"),
            Self::NotActive(who) => write!(f, "{who} sleeps, comes or goes"),
            Self::NotClean(who) => write!(f, "{who} is connected with CleanSession 0"),
            Self::Kept(id) => write!(f, "the broker keeps the session of '{}'", id.escape_debug()),
            Self::OtherQos(who) => write!(
                f,
                "{who} uses QoS 1 or 2, so that messages of it may wait at the broker"
            ),
            Self::Unclear(who) => write!(f, "which topic ids {who} has is not clear"),
            Self::Unproven(who) => write!(
                f,
                "the broker has not sent {who} anything that proves its address"
            ),
            Self::Overdue(who) => write!(f, "{who} has not been heard for its keep-alive"),
            Self::InDoubt(who) => {
                write!(f, "the broker has not confirmed lately that it knows {who}")
            }
            Self::Overlap(who) => write!(f, "{who} has several subscriptions that match"),
            Self::OtherWay(who) => write!(
                f,
                "{who} names the topic in another way, or in two (name, predefined or short)"
            ),
            Self::NoId(who) => write!(f, "{who} and the broker have not agreed on a topic id"),
            Self::PredefinedUnknown(who, id) => {
                write!(
                    f,
                    "{who} is subscribed to predefined id {id} (--predefined {id}=NAME)"
                )
            }
            Self::Full => f.write_str("there is no room for another rule"),
            Self::Copies => write!(f, "more than {MOST_COPIES} subscribers"),
            Self::Unreachable(who) => write!(f, "the way to {who} is not known"),
        }
    }
}
