//! What was counted and measured, and how it is told.

pub mod csv;
pub mod places;
pub mod report;
pub mod rows;
pub mod tally;
