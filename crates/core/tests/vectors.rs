//! The golden vectors of `docs/vectors`, recomputed through the public API. `docs/vectors/check.py` recomputes them
//! a second time with code of its own, so that neither is its own judge.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panic")]

use counterfoil_core::json::{self, Bounds, Problem, Value};
use counterfoil_core::{
    Fingerprint, Intent, Issuer, Principal, RequestId, Schema, Subject, ToolName, Workspace,
};

/// The cases of one file, read by our own reader: its integers are exact.
fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../../docs/vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let file = json::parse(&bytes, Bounds::default()).unwrap();
    let Some(Value::Array(cases)) = file.get("cases") else { panic!("{path}: no cases") };
    assert!(!cases.is_empty(), "{path} is empty");
    cases.clone()
}

fn text<'v>(case: &'v Value, name: &str) -> &'v str {
    case.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name:?} in {case:?}"))
}

fn flag(case: &Value, name: &str) -> bool {
    match case.get(name) {
        Some(Value::Boolean(flag)) => *flag,
        other => panic!("{name:?} is {other:?} in {case:?}"),
    }
}

/// The bytes of a text, or of its hexadecimal form where it is not UTF-8.
fn source(case: &Value, name: &str) -> Vec<u8> {
    match case.get(&format!("{name}_hex")).and_then(Value::as_str) {
        Some(hex) => {
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(byte).collect()
        }
        None => text(case, name).as_bytes().to_vec(),
    }
}

fn schema(case: &Value) -> Schema {
    Schema::compile(case.get("schema").unwrap()).unwrap_or_else(|e| panic!("{}: {e}", text(case, "name")))
}

fn intent(case: &Value, name: &str) -> Intent {
    let value = json::parse(&source(case, name), Bounds::default())
        .unwrap_or_else(|e| panic!("{}: {e}", text(case, "name")));
    schema(case).read(&value).unwrap_or_else(|e| panic!("{}: {e:?}", text(case, "name")))
}

#[test]
fn canonical_texts_and_fingerprints() {
    for case in cases("canonical") {
        let name = text(&case, "name");
        let intent = intent(&case, "arguments");
        assert_eq!(intent.text(), text(&case, "canonical"), "{name}");
        let tool = ToolName::parse(text(&case, "tool")).unwrap();
        assert_eq!(Fingerprint::of(&tool, &intent).to_string(), text(&case, "fingerprint"), "{name}");
    }
}

#[test]
fn canonical_texts_are_their_own_canonical_texts() {
    for case in cases("canonical") {
        let value = json::parse(text(&case, "canonical").as_bytes(), Bounds::default()).unwrap();
        let again = schema(&case).read(&value).unwrap();
        assert_eq!(again.text(), text(&case, "canonical"), "{}", text(&case, "name"));
    }
}

fn word(problem: Problem) -> &'static str {
    match problem {
        Problem::Utf8 => "utf8",
        Problem::Syntax => "syntax",
        Problem::Trailing => "trailing",
        Problem::Duplicate => "duplicate",
        Problem::LoneSurrogate => "lone_surrogate",
        Problem::Nul => "nul",
        Problem::TooDeep => "too_deep",
        Problem::TooMany => "too_many",
    }
}

#[test]
fn what_must_be_refused_is_refused_at_its_stage_and_place() {
    for case in cases("refused") {
        let name = text(&case, "name");
        let schema = schema(&case);
        let value = match json::parse(&source(&case, "arguments"), Bounds::default()) {
            Err(invalid) => {
                assert_eq!("json", text(&case, "stage"), "{name}: {invalid}");
                assert_eq!(word(invalid.problem), text(&case, "problem"), "{name}");
                continue;
            }
            Ok(value) => value,
        };
        assert_eq!("arguments", text(&case, "stage"), "{name}");
        let faults = schema.read(&value).expect_err(name);
        let mut pointers: Vec<String> = faults.into_iter().map(|fault| fault.pointer).collect();
        pointers.sort();
        let Some(Value::Array(expected)) = case.get("pointers") else { panic!("{name}: no pointers") };
        let expected: Vec<&str> = expected.iter().filter_map(Value::as_str).collect();
        assert_eq!(pointers, expected, "{name}");
    }
}

#[test]
fn pairs_are_the_same_or_not() {
    for case in cases("pairs") {
        let tool = case.get("tool").unwrap();
        let tools: Vec<&str> = if let Value::Array(tools) = tool {
            tools.iter().filter_map(Value::as_str).collect()
        } else {
            vec![tool.as_str().unwrap(); 2]
        };
        let print = |tool: &str, side| Fingerprint::of(&ToolName::parse(tool).unwrap(), &intent(&case, side));
        let same = print(tools[0], "left") == print(tools[1], "right");
        assert_eq!(same, flag(&case, "same"), "{}", text(&case, "name"));
    }
}

#[test]
fn request_ids_are_valid_and_dated_or_not() {
    for case in cases("request_ids") {
        let name = text(&case, "name");
        let id = RequestId::parse(text(&case, "id"));
        assert_eq!(id.is_ok(), flag(&case, "valid"), "{name}");
        assert_eq!(id.as_ref().is_ok_and(RequestId::is_uuid), flag(&case, "uuid"), "{name}");
        let dated = id.ok().and_then(|id| id.dated()).map(|at| at.to_string());
        assert_eq!(dated.as_deref(), case.get("dated").and_then(Value::as_str), "{name}");
    }
}

#[test]
fn callers_have_their_opaque_names() {
    for case in cases("callers") {
        let principal = Principal {
            issuer: Issuer::parse(text(&case, "issuer")).unwrap(),
            subject: Subject::parse(text(&case, "subject")).unwrap(),
            workspace: Workspace::parse(text(&case, "workspace")).unwrap(),
            scopes: [].into(),
        };
        assert_eq!(principal.caller(), text(&case, "caller"), "{}", text(&case, "name"));
    }
}
