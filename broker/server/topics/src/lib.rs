//! Finds the subscriptions that match a topic, and the retained messages that match a filter.

mod filters;
mod names;
mod ordered;
mod retained;
mod tree;

pub use names::{
    MAX_LEVELS, MAX_OCTETS, covers, has_wildcards, matches, unshared, valid_filter, valid_topic,
};
pub use retained::Retained;
pub use tree::{Group, Match, Tree};
