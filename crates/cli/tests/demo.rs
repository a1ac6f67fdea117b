//! `counterfoil demo` as people run it: what it prints, how it ends, and that it leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use regex::Regex;

fn demo(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.arg("demo").env("TMPDIR", folder).stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Times, epochs, ports and processes differ from run to run, and nothing else does.
fn normalised(text: &str) -> String {
    let patterns = [
        (r"process \d+, port \d+", "process 1, port 2"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "2026-01-01T00:00:00.000000Z"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "00000000-0000-4000-8000-000000000000"),
        (r"in \d+\.\d\d s", "in 0.05 s"),
    ];
    let replace = |text: String, (from, to): (&str, &str)| {
        Regex::new(from).unwrap().replace_all(&text, to).into_owned()
    };
    patterns.into_iter().fold(text.to_owned(), replace)
}

/// Processes whose command line names a file of `folder`.
fn processes(folder: &Path) -> usize {
    let lines = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let name = folder.to_str().unwrap();
    lines.filter(|line| String::from_utf8_lossy(line).contains(name)).count()
}

fn check_nothing_left(folder: &Path) {
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "files are left");
    assert_eq!(processes(folder), 0, "a process is left");
}

#[test]
fn it_tells_the_story_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let since = Instant::now();
    let output = demo(folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(since.elapsed() < Duration::from_secs(60));
    assert_eq!(normalised(&text(&output)), include_str!("demo.txt"));
    check_nothing_left(folder.path());
}

#[test]
fn it_goes_away_when_it_is_told_to() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let folder = tempfile::tempdir().unwrap();
        // Its output is full and nobody reads: it waits in the middle of its story, its server running.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let output = writer.try_clone().unwrap();
        std::thread::spawn(move || writer.write_all(&vec![b' '; 1 << 20]));
        let mut child = demo(folder.path()).stdout(output).spawn().unwrap();
        until(|| processes(folder.path()) == 1);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        check_nothing_left(folder.path());
        drop(reader);
    }
}

#[test]
fn without_a_place_for_its_folder_it_says_so() {
    let output = demo(Path::new("/nowhere")).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(!output.stderr.is_empty());
}

#[expect(clippy::disallowed_methods, reason = "another process tells of itself in no other way")]
fn until(done: impl Fn() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(30), "not in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}
