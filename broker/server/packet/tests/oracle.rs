//! Compares the decoder with mqtt-protocol-core: packets that both accept are decoded to the same.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod common;

use common::check::check;
use common::{mutated, packet, packets};
use mqtick_packet::{MAXIMUM_LENGTH, Packet, Version, decode, frame};
use proptest::prelude::*;

/// Decode a well-formed packet.
fn accepted(octets: &[u8], version: Version) -> Packet<'_> {
    let frame = frame(octets, MAXIMUM_LENGTH)
        .unwrap()
        .expect("a whole packet");
    decode(&frame, version).unwrap_or_else(|error| panic!("{octets:02X?}: {error}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn well_formed_packets_of_3_1_1_are_accepted_and_mean_the_same(octets in packets(false)) {
        accepted(&octets, Version::V3);
        check(&octets);
    }

    #[test]
    fn well_formed_packets_of_5_are_accepted_and_mean_the_same(octets in packets(true)) {
        accepted(&octets, Version::V5);
        check(&octets);
    }

    #[test]
    fn mutated_packets_of_3_1_1_mean_the_same_to_both_or_a_clause_decides(octets in mutated(false)) {
        check(&octets);
    }

    #[test]
    fn mutated_packets_of_5_mean_the_same_to_both_or_a_clause_decides(octets in mutated(true)) {
        check(&octets);
    }

    #[test]
    fn any_octets_mean_the_same_to_both_or_a_clause_decides(
        first in any::<u8>(),
        body in prop::collection::vec(prop_oneof![any::<u8>(), 0..8_u8], 0..40),
    ) {
        check(&packet(first, &body));
    }
}
