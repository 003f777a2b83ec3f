//! Damaged packets of every kind, and the fuzzer's corpus. Nothing panics, and mqtt-protocol-core
//! decodes all that is accepted to the same.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::check::check;
use common::{body, packet, packets};
use mqtick_packet::{MAXIMUM_LENGTH, frame};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_packet_cut_anywhere_waits_for_more(octets in any::<bool>().prop_flat_map(packets)) {
        for length in 0..octets.len() {
            assert_eq!(frame(&octets[..length], MAXIMUM_LENGTH), Ok(None));
        }
        assert!(frame(&octets, octets.len()).unwrap().is_some());
    }

    #[test]
    fn a_packet_whose_body_ends_anywhere_does_no_harm(octets in any::<bool>().prop_flat_map(packets)) {
        let body = body(&octets);
        for length in 0..body.len() {
            check(&packet(octets[0], &body[..length]));
        }
    }

    #[test]
    fn a_packet_with_any_one_bit_flipped_does_no_harm(octets in any::<bool>().prop_flat_map(packets)) {
        for bit in 0..8 * octets.len() {
            let mut octets = octets.clone();
            octets[bit / 8] ^= 1 << (bit % 8);
            check(&octets);
        }
    }
}

/// The fuzzer's corpus, in the order of its names.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let mut files: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

#[test]
fn the_corpus_of_the_fuzzer_does_no_harm_nor_do_its_neighbours() {
    let corpus = corpus();
    assert!(corpus.len() > 100, "only {} seeds", corpus.len());
    for octets in &corpus {
        check(octets);
        for place in 0..octets.len() {
            for octet in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut octets = octets.clone();
                octets[place] = octet;
                check(&octets);
            }
        }
    }
}
