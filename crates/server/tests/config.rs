//! Configs and what is said about them: every `tests/config/*.toml` has its picture beside it in a `.txt`.
//!
//! `UPDATE_EXPECT=1 cargo test -p counterfoil-server --test config` writes the pictures anew; look at them before
//! they are committed: they are what a newcomer reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own files has failed")]

use std::path::Path;

use counterfoil_server::config::{self, Config, DatabaseUrl, Kind};

/// Reads `path` as a config and compares what comes out with the picture beside it.
fn check(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let picture = match config::parse(name, &text) {
        Ok(config) => understood(&config),
        Err(report) => report.plain(),
    };
    let expected = path.with_extension("txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&expected, &picture).unwrap();
    }
    let expected = std::fs::read_to_string(&expected).unwrap_or_default();
    if picture == expected {
        Ok(())
    } else {
        Err(format!("{name}: expected\n{expected}\nand got\n{picture}"))
    }
}

/// What a config without mistakes was understood to say.
fn understood(config: &Config) -> String {
    let mut out = format!("{:?}\n{:?}\n", config.database.url.value, config.limits);
    if let DatabaseUrl::Postgres(_) = config.database.url.value {
        out.push_str(&format!("{:?}\n", config.database.postgres));
    }
    for tool in &config.tools {
        let (windows, input) = (config.windows(tool), tool.input.json_schema());
        let kind = match &tool.kind {
            Kind::Read(read) => format!("reads, {:?}", read.returns),
            Kind::Write(write) => format!(
                "writes {} statement(s) as {}, {:?}, `{}` guards `{}`",
                write.statements.len(),
                write.revision.value,
                write.returns,
                write.version.argument,
                write.version.column,
            ),
        };
        out.push_str(&format!("\n{} ({}): {kind}\n{windows:?}\n", tool.name.value, tool.ledger_name()));
        out.push_str(&format!("{input:#}\n"));
        if let Kind::Write(write) = &tool.kind {
            for retired in &write.retired {
                out.push_str(&format!(
                    "{} is retired: {}\n",
                    retired.revision.value,
                    retired.input.json_schema()
                ));
            }
        }
    }
    out
}

#[test]
fn every_config_gives_the_picture_beside_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut configs: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    configs.sort();
    assert!(configs.len() > 10, "the configs have gone missing");
    let failed: Vec<String> = configs.iter().filter_map(|path| check(path).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn pictures_are_coloured_on_request_only() {
    let report = config::parse("c.toml", "databse = 1").unwrap_err();
    assert!(report.coloured().contains('\u{1b}'));
    assert!(!report.plain().contains('\u{1b}'));
}

#[test]
fn spans_reach_into_statements() {
    let text =
        "[database]\nurl = 'sqlite:a.db'\n[tools.t]\nscope = 's'\nread = \"\"\"\n  SELECT :oops\"\"\"\n";
    let config = config::parse("c.toml", text).unwrap();
    let Kind::Read(read) = &config.tools[0].kind else { panic!("not a read") };
    let at = read.sql.find(":oops").unwrap();
    let span = config.source.inside(&read.sql.span, &read.sql, at..at + 5);
    assert_eq!(&text[span], ":oops");
}

/// A half-typed file is what an editor's author checks most often: no cut and no lost line may panic, in the
/// reading or in the drawing.
#[test]
fn every_damaged_config_is_answered() {
    let whole = include_str!("config/everything.toml").replace("Queue", "Käufe 🎟");
    let lines: Vec<&str> = whole.lines().collect();
    let cut = whole.char_indices().map(|(at, _)| whole[..at].to_owned());
    let without = (0..lines.len()).map(|gone| [&lines[..gone], &lines[gone + 1..]].concat().join("\r\n"));
    for text in cut.chain(without) {
        if let Err(report) = config::parse("c.toml", &text) {
            assert!(report.errors() > 0 && report.coloured().contains("c.toml"), "{text}");
        }
    }
}
