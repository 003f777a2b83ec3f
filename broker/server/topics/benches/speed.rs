//! How long matches, walks and changes take.
fn main() {}
