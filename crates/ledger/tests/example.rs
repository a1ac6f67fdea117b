//! The example does what it says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[allow(dead_code, reason = "its main is the program's")]
#[path = "../examples/library.rs"]
mod library;

use counterfoil_testkit::{Answer, Database, block_on};

#[test]
fn the_example_replays_in_both_forms_and_refuses_a_reused_id() {
    let lines = block_on(library::story(&Database::absent().path())).unwrap();
    let answers: Vec<_> = lines.iter().map(|line| Answer::of(&line[line.find('{').unwrap()..])).collect();
    let [first, again, second, again_second, reused] = answers.try_into().unwrap();
    for (first, again) in [(first, again), (second, again_second)] {
        let (first, again) = (first.done(), again.done());
        assert_eq!((first.replayed, again.replayed), (false, true));
        assert_eq!(first.result, again.result);
    }
    assert_eq!(reused.refused().code, "request_id_reused");
}
