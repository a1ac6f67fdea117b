//! Receipts as a text file, for archives and moves: one JSON object a line, a header before them, a trailer that says
//! how many they are and what they hash to. `docs/export.md` is the format.

use std::io::{self, BufRead, Read as _, Write};

use counterfoil_core::{
    Committed, Epoch, Fingerprint, Issuer, Receipt, RequestId, Revision, Subject, Timestamp, ToolName,
    Workspace, limits,
};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::record::{Record, State};

/// The version of the format.
const FORMAT: u64 = 1;

/// The longest line that is read, in bytes: everything is bounded, and an escape makes six bytes of one.
const LINE: u64 = 6 * (limits::RESULT_CEILING + limits::INTENT + 8 * limits::NAME) as u64;

/// Writes an export.
pub struct Exporter<W: Write> {
    out: W,
    hash: Sha256,
    receipts: u64,
}

impl<W: Write> Exporter<W> {
    /// Begins with the header.
    ///
    /// # Errors
    /// The output's.
    pub fn begin(out: W, epoch: &Epoch, at: Timestamp) -> io::Result<Self> {
        let mut exporter = Self { out, hash: Sha256::new(), receipts: 0 };
        let header =
            json!({"counterfoil_export": FORMAT, "epoch": epoch.as_str(), "exported_at": at.to_string()});
        exporter.line(&header)?;
        Ok(exporter)
    }

    /// Writes one receipt.
    ///
    /// # Errors
    /// The output's.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        self.receipts += 1;
        self.line(&line(record))
    }

    /// Ends with the trailer; tells how many receipts there are.
    ///
    /// # Errors
    /// The output's.
    pub fn finish(mut self) -> io::Result<u64> {
        let sha256 = hex(&self.hash.clone().finalize());
        let trailer = json!({"receipts": self.receipts, "sha256": sha256});
        writeln!(self.out, "{trailer}")?;
        self.out.flush()?;
        Ok(self.receipts)
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        let line = format!("{value}\n");
        self.hash.update(&line);
        self.out.write_all(line.as_bytes())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn line(record: &Record) -> Value {
    let mut value = json!({
        "workspace": record.workspace.as_str(),
        "issuer": record.issuer.as_str(),
        "subject": record.subject.as_str(),
        "tool": record.tool.as_str(),
        "request_id": record.request_id.as_str(),
        "at": record.at.to_string(),
        "state": State::Voided.as_str(),
    });
    if let (Receipt::Committed(committed), Some(members)) = (&record.receipt, value.as_object_mut()) {
        members.insert("state".into(), State::Committed.as_str().into());
        members.insert("revision".into(), committed.revision.as_str().into());
        members.insert("fingerprint".into(), committed.fingerprint.to_string().into());
        let texts = [("intent", &record.intent), ("result", &committed.result)];
        for (name, text) in texts {
            if let Some(text) = text {
                members.insert(name.into(), (**text).into());
            }
        }
    }
    value
}

/// Why an export is not taken. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ImportError {
    /// Which line, from 1.
    pub line: u64,
    /// What is wrong there.
    pub problem: String,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Whose history it is of.
    pub epoch: Epoch,
    /// Receipts that are new here.
    pub added: u64,
    /// Receipts that were here already, the same in every part.
    pub known: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    counterfoil_export: u64,
    epoch: String,
    #[expect(dead_code, reason = "for people")]
    exported_at: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trailer {
    receipts: u64,
    sha256: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    workspace: String,
    issuer: String,
    subject: String,
    tool: String,
    request_id: String,
    at: String,
    state: String,
    revision: Option<String>,
    fingerprint: Option<String>,
    intent: Option<Box<str>>,
    result: Option<Box<str>>,
}

/// Reads an export from its header to its trailer, and shows each receipt to `see`; tells whose epoch it is of. Only
/// when all of it was read is any of it to be believed.
///
/// # Errors
/// The first line that is wrong, and what is wrong with it.
pub fn read(
    mut input: impl BufRead,
    mut see: impl FnMut(Record) -> Result<(), String>,
) -> Result<Epoch, ImportError> {
    let (mut hash, mut number, mut receipts, mut epoch) = (Sha256::new(), 0, 0, None);
    loop {
        number += 1;
        let wrong = |problem: String| ImportError { line: number, problem };
        let text = next(&mut input).map_err(wrong)?;
        let Some(begun) = &epoch else {
            epoch = Some(header(&text).map_err(wrong)?);
            hash.update(&text);
            continue;
        };
        if let Ok(trailer) = serde_json::from_str::<Trailer>(&text) {
            whole(&trailer, receipts, &hex(&hash.finalize())).map_err(wrong)?;
            let more = input.fill_buf().map_err(|error| wrong(error.to_string()))?;
            if !more.is_empty() {
                return Err(ImportError {
                    line: number + 1,
                    problem: "something follows the trailer".into(),
                });
            }
            return Ok(begun.clone());
        }
        receipts += 1;
        hash.update(&text);
        see(record(&text).map_err(wrong)?).map_err(wrong)?;
    }
}

/// The next line, its end included.
fn next(input: &mut impl BufRead) -> Result<String, String> {
    let mut text = String::new();
    let read = input.by_ref().take(LINE).read_line(&mut text).map_err(|error| error.to_string())?;
    match (read, text.ends_with('\n')) {
        (0, _) => Err("the file ends without its trailer: it was cut".into()),
        (_, true) => Ok(text),
        (read, false) if read as u64 == LINE => Err("it is longer than any line of an export".into()),
        (_, false) => Err("the line has no end: the file was cut".into()),
    }
}

fn header(text: &str) -> Result<Epoch, String> {
    let header: Header =
        serde_json::from_str(text).map_err(|_| "this is no export: its first line is another".to_owned())?;
    if header.counterfoil_export != FORMAT {
        let found = header.counterfoil_export;
        return Err(format!("it is in format {found} and this program knows {FORMAT}"));
    }
    Epoch::parse(&header.epoch).map_err(|error| error.to_string())
}

fn whole(trailer: &Trailer, receipts: u64, sha256: &str) -> Result<(), String> {
    if trailer.receipts != receipts {
        return Err(format!("the trailer counts {} receipts and there are {receipts}", trailer.receipts));
    }
    if trailer.sha256 != sha256 {
        return Err("the lines before do not hash to what the trailer says: one was edited".into());
    }
    Ok(())
}

fn record(text: &str) -> Result<Record, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| format!("this is no receipt: {error}"))?;
    let said = |error: counterfoil_core::words::InvalidWord| error.to_string();
    let tool = ToolName::parse(&line.tool).map_err(said)?;
    let at = Timestamp::parse(&line.at)?;
    let receipt = match (line.state.as_str(), line.revision, line.fingerprint) {
        ("voided", None, None) if line.intent.is_none() && line.result.is_none() => Receipt::Voided,
        ("committed", Some(revision), Some(fingerprint)) => Receipt::Committed(Committed {
            revision: Revision::parse(&revision).map_err(said)?,
            fingerprint: Fingerprint::from_hex(&fingerprint).ok_or("the fingerprint is malformed")?,
            at,
            result: line.result,
        }),
        _ => return Err("the state and the other members do not fit".into()),
    };
    let record = Record {
        workspace: Workspace::parse(&line.workspace).map_err(said)?,
        issuer: Issuer::parse(&line.issuer).map_err(said)?,
        subject: Subject::parse(&line.subject).map_err(said)?,
        tool,
        request_id: RequestId::parse(&line.request_id).map_err(said)?,
        at,
        receipt,
        intent: line.intent,
    };
    record.sound().map(|()| record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let tool = ToolName::parse("set_interval").unwrap();
        let committed = Committed {
            revision: Revision::parse("v1").unwrap(),
            fingerprint: Fingerprint::of_text(&tool, "{\"id\":9007199254740993}"),
            at: Timestamp::from_micros(1_796_000_000_123_456),
            result: Some("{\"big\": 9007199254740993,\"text\":\"\\u00e9\"}".into()),
        };
        let record = |id: &str, receipt, intent: Option<&str>| Record {
            workspace: Workspace::parse("team\n\"a").unwrap(),
            issuer: Issuer::parse("local").unwrap(),
            subject: Subject::parse("alice").unwrap(),
            tool: tool.clone(),
            request_id: RequestId::parse(id).unwrap(),
            at: committed.at,
            receipt,
            intent: intent.map(Into::into),
        };
        let fact = Committed { result: None, ..committed.clone() };
        vec![
            record("edit-1", Receipt::Committed(committed.clone()), Some("{\"id\":9007199254740993}")),
            record("edit-2", Receipt::Committed(fact), None),
            record("edit-3", Receipt::Voided, None),
        ]
    }

    fn exported() -> String {
        let mut out = Vec::new();
        let epoch = Epoch::parse("one").unwrap();
        let mut exporter = Exporter::begin(&mut out, &epoch, Timestamp::from_micros(0)).unwrap();
        records().iter().for_each(|record| exporter.record(record).unwrap());
        assert_eq!(exporter.finish().unwrap(), 3);
        String::from_utf8(out).unwrap()
    }

    fn imported(text: &str) -> Result<Vec<Record>, String> {
        let mut seen = Vec::new();
        let see = |record| {
            seen.push(record);
            Ok(())
        };
        read(text.as_bytes(), see).map(|_| ()).map_err(|error| error.to_string())?;
        Ok(seen)
    }

    #[test]
    fn what_is_exported_comes_back_byte_for_byte() {
        assert_eq!(imported(&exported()).unwrap(), records());
    }

    #[test]
    fn every_cut_and_every_edit_is_refused() {
        let whole = exported();
        for end in 0..whole.len() {
            assert!(imported(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            for to in ["x", "0", "\n", "", "\""] {
                let edited = format!("{}{to}{}", &whole[..at], &whole[at + 1..]);
                assert!(edited == whole || imported(&edited).is_err(), "{to:?} at {at}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_located() {
        let whole = exported();
        let lines: Vec<&str> = whole.lines().collect();
        let of = |lines: &[&str]| format!("{}\n", lines.join("\n"));
        let cases = [
            (String::new(), "line 1: the file ends without its trailer"),
            (of(&["{}"]), "line 1: this is no export"),
            (
                whole.replace("\"counterfoil_export\":1", "\"counterfoil_export\":2"),
                "line 1: it is in format 2",
            ),
            (of(&lines[..3]), "line 4: the file ends without its trailer"),
            (of(&[lines[0], lines[1], lines[4]]), "line 3: the trailer counts 3 receipts and there are 1"),
            (whole.replace("edit-2", "edit-9"), "line 5: the lines before do not hash"),
            (whole.replace("edit-2", "edit 2"), "line 3: request id may only hold"),
            (
                whole.replace("{\\\"id\\\":9007199254740993}", "{}"),
                "line 2: the fingerprint is not that of the intent",
            ),
            (whole.replace("\"voided\"", "\"lost\""), "line 4: the state and the other members"),
            (
                whole.replace("\"subject\"", "\"object\""),
                "line 2: this is no receipt: unknown field `object`",
            ),
            (format!("{whole}{whole}"), "line 6: something follows the trailer"),
        ];
        for (text, wanted) in cases {
            let error = imported(&text).unwrap_err();
            assert!(error.starts_with(wanted), "{wanted}: {error}");
        }
    }
}
