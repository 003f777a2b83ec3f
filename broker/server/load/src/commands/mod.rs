//! What the commands measure, and what they say of it.

pub mod blocks;
pub mod fanout;
pub mod idle;
pub mod limit;
pub mod pairs;
pub mod run;
pub mod search;
