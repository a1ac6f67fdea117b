//! The properties of `fuzz/`, held on the stable toolchain: by every seed, and by mutations of them, as many as pass in
//! a moment. `cargo fuzz` looks further; see `fuzz/README.md`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../../fuzz/properties.rs"]
mod properties;

use std::hash::{BuildHasher as _, RandomState};
use std::panic::catch_unwind;
use std::path::Path;

/// Mutations for each property.
const TRIES: usize = 20_000;

/// Marsaglia's xorshift64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(most.max(1)).unwrap()).unwrap()
    }
}

/// A few changes of the kinds that fuzzers make: a bit, a byte, a piece gone, a piece twice, a piece of another seed.
fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let (at, length) = (random.below(bytes.len()), random.below(24));
        let end = (at + length).min(bytes.len());
        match random.below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 => bytes.insert(at, b"\"\\{}[],:.eE-+019 \n\0\xff"[random.below(20)]),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => bytes.truncate(at),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let piece = other[from..(from + length).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

fn check(name: &str, property: properties::Property, input: &[u8]) {
    let held = catch_unwind(|| property(input));
    assert!(held.is_ok(), "{name} does not hold for {:?}", String::from_utf8_lossy(input));
}

#[test]
fn properties_hold_for_seeds_and_their_mutations() {
    let seed = std::env::var("COUNTERFOIL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(())) | 1;
    println!("COUNTERFOIL_SEED={seed}");
    let mut random = Random(seed);
    for (name, property) in properties::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        assert!(seeds.len() > 2, "{name}");
        seeds.iter().for_each(|seed| check(name, property, seed));
        (0..TRIES).for_each(|_| check(name, property, &mutated(&seeds, &mut random)));
    }
}
