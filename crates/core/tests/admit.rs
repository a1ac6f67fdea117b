//! From a request to a call: scope first, then the request id from its sources, then the arguments (steps 2 to 5).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panic")]

use std::sync::Arc;

use counterfoil_core::contract::{Fresh, Windows};
use counterfoil_core::json::{self, Bounds, Value};
use counterfoil_core::{
    Argument, Call, Code, Contract, FieldError, IdForm, Intent, Issuer, Operation, Principal, Refusal,
    Revision, Schema, Scope, Sources, Subject, ToolName, Workspace, limits,
};

fn value(text: &str) -> Value {
    json::parse(text.as_bytes(), Bounds::default()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn compiled(text: &str) -> Schema {
    Schema::compile(&value(text)).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn revision(name: &str) -> Revision {
    Revision::parse(name).unwrap()
}

const LIVE: &str = r#"{"type":"object","required":["id"],"properties":{
    "id":{"type":"integer","minimum":1},"note":{"type":["string","null"]},"level":{"type":"integer","default":3}}}"#;
const RETIRED: &str = r#"{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}"#;

fn contract(ids: IdForm) -> Contract {
    Contract {
        ledger_name: ToolName::parse("oldest_name").unwrap(),
        scope: Scope::parse("automation:write").unwrap(),
        revision: revision("v2"),
        schema: compiled(LIVE),
        retired: vec![(revision("v1"), compiled(RETIRED))],
        ids,
        windows: Windows::default(),
        store_intent: true,
    }
}

fn principal(scopes: &[&str]) -> Arc<Principal> {
    Arc::new(Principal {
        issuer: Issuer::parse("local").unwrap(),
        subject: Subject::parse("alice").unwrap(),
        workspace: Workspace::parse("team-a").unwrap(),
        scopes: scopes.iter().map(|scope| Scope::parse(scope).unwrap()).collect(),
    })
}

fn admit(ids: IdForm, pin: Option<&str>, sources: &Sources, arguments: &str) -> Result<Call, Refusal> {
    let pin = pin.map(revision);
    contract(ids).admit(&principal(&["automation:write"]), pin.as_ref(), sources, value(arguments))
}

/// Where one row of the tables puts its ids; `""` is absent, everything else is JSON.
fn sources(meta: &str, headers: &[&[u8]], member: &str) -> Sources {
    let json = |text: &str| (!text.is_empty()).then(|| value(text));
    Sources { meta: json(meta), headers: headers.iter().map(|h| (*h).into()).collect(), member: json(member) }
}

fn arguments(id: &str) -> String {
    if id.is_empty() { "{\"id\":1}".into() } else { format!("{{\"id\":1,\"request_id\":{id}}}") }
}

/// An id that is found, or why none is.
type Found = Result<&'static str, Code>;
/// Name, argument, `_meta`, headers, member, and what is found.
type Row = (&'static str, &'static str, &'static str, Headers, &'static str, Found);
type Headers = &'static [&'static [u8]];

const REQUIRED: Result<&str, Code> = Err(Code::RequestIdRequired);
const INVALID: Result<&str, Code> = Err(Code::InvalidRequestId);

fn check(name: &str, got: Result<Call, Refusal>, expected: Result<&str, Code>) {
    match (got, expected) {
        (Ok(call), expected) => assert_eq!(Ok(call.request_id.as_str()), expected, "{name}"),
        (Err(refusal), expected) => {
            assert_eq!(Err(refusal.code()), expected, "{name}: {refusal}");
            assert_eq!(refusal.operation(), Some(Operation::Unknown), "{name}: nothing was looked up");
        }
    }
}

#[test]
fn the_sources_of_a_request_id_and_their_agreement() {
    let rows: &[Row] = &[
        ("none", "", "", &[], "", REQUIRED),
        ("argument", "\"e-1\"", "", &[], "", Ok("e-1")),
        ("meta", "", "\"e-1\"", &[], "", Ok("e-1")),
        ("header", "", "", &[b"e-1"], "", Ok("e-1")),
        ("member", "", "", &[], "\"e-1\"", Ok("e-1")),
        ("all four agree", "\"e-1\"", "\"e-1\"", &[b"\"e-1\""], "\"e-1\"", Ok("e-1")),
        ("escaped letters are the same letters", "\"\\u0065-1\"", "\"e-1\"", &[], "", Ok("e-1")),
        ("P13 argument and header differ", "\"e-1\"", "", &[b"e-2"], "", INVALID),
        ("argument and meta differ", "\"e-1\"", "\"e-2\"", &[], "", INVALID),
        ("meta and header differ", "", "\"e-1\"", &[b"e-2"], "", INVALID),
        ("meta and member differ", "", "\"e-1\"", &[], "\"e-2\"", INVALID),
        ("header and member differ", "", "", &[b"e-1"], "\"e-2\"", INVALID),
        ("the last of four differs", "\"e-1\"", "\"e-1\"", &[b"e-2"], "\"e-1\"", INVALID),
        ("P10 they differ in case", "\"E-1\"", "\"e-1\"", &[], "", INVALID),
        ("P10 they differ by a space", "\"e-1\"", "\"e-1 \"", &[], "", INVALID),
        ("one is right, one malformed", "\"e-1\"", "\"\"", &[], "", INVALID),
        ("R12 empty", "\"\"", "", &[], "", INVALID),
        ("R12 null argument", "null", "", &[], "", INVALID),
        ("null argument beside a good header", "null", "", &[b"e-1"], "", INVALID),
        ("R12 a space inside", "\"e 1\"", "", &[], "", INVALID),
        ("R12 a space at the end", "\"e-1 \"", "", &[], "", INVALID),
        ("a dot", "\"e.1\"", "", &[], "", INVALID),
        ("not ASCII", "\"\\u00e9\"", "", &[], "", INVALID),
        ("argument is a number", "1", "", &[], "", INVALID),
        ("argument is an object", "{}", "", &[], "", INVALID),
        ("meta is a number", "", "1", &[], "", INVALID),
        ("meta is null", "", "null", &[], "", INVALID),
        ("meta is an array", "", "[\"e-1\"]", &[], "", INVALID),
        ("member is a boolean", "", "", &[], "true", INVALID),
        ("member is null", "", "", &[], "null", INVALID),
    ];
    for (name, argument, meta, headers, member, expected) in rows {
        let got = admit(IdForm::Any, None, &sources(meta, headers, member), &arguments(argument));
        check(name, got, *expected);
    }
}

#[test]
fn the_header_is_bare_or_quoted_and_stands_once() {
    let rows: &[(&str, Headers, Found)] = &[
        ("bare", &[b"e-1"], Ok("e-1")),
        ("quoted", &[b"\"e-1\""], Ok("e-1")),
        ("blanks around it are not part of a header's value", &[b" \te-1 "], Ok("e-1")),
        ("blanks around the quoted string", &[b"  \"e-1\"\t"], Ok("e-1")),
        ("empty", &[b""], INVALID),
        ("blanks only", &[b"  "], INVALID),
        ("quoted and empty", &[b"\"\""], INVALID),
        ("blanks inside the quotes", &[b"\" e-1\""], INVALID),
        ("one quote in front", &[b"\"e-1"], INVALID),
        ("one quote behind", &[b"e-1\""], INVALID),
        ("a quote alone", &[b"\""], INVALID),
        ("an escaped quote", &[b"\"e\\\"1\""], INVALID),
        ("an escaped letter", &[b"\"\\e-1\""], INVALID),
        ("a quote inside", &[b"\"e\"1\""], INVALID),
        ("parameters", &[b"\"e-1\";v=1"], INVALID),
        ("parameters of a bare one", &[b"e-1;v=1"], INVALID),
        ("a list", &[b"e-1, e-2"], INVALID),
        ("a list of the same", &[b"\"e-1\", \"e-1\""], INVALID),
        ("repeated", &[b"e-1", b"e-2"], INVALID),
        ("repeated with the same value", &[b"e-1", b"e-1"], INVALID),
        ("repeated, once empty", &[b"e-1", b""], INVALID),
        ("a byte sequence of structured fields", &[b":ZS0x:"], INVALID),
        ("not UTF-8", &[b"e-\xff"], INVALID),
        ("UTF-8, not ASCII", &[b"\xc3\xa9"], INVALID),
        ("a NUL", &[b"e\0-1"], INVALID),
    ];
    for (name, headers, expected) in rows {
        check(name, admit(IdForm::Any, None, &sources("", headers, ""), "{\"id\":1}"), *expected);
    }
}

#[test]
fn ids_are_one_to_sixty_four_characters_wherever_they_stand() {
    for (length, fine) in [(1, true), (64, true), (65, false), (10_000, false)] {
        let id = "x".repeat(length);
        let expected = if fine { Ok(&*id) } else { INVALID };
        let quoted = format!("\"{id}\"");
        let header: &[&[u8]] = &[quoted.as_bytes()];
        check("argument", admit(IdForm::Any, None, &Sources::default(), &arguments(&quoted)), expected);
        check("meta", admit(IdForm::Any, None, &sources(&quoted, &[], ""), "{\"id\":1}"), expected);
        check("member", admit(IdForm::Any, None, &sources("", &[], &quoted), "{\"id\":1}"), expected);
        check("header", admit(IdForm::Any, None, &sources("", header, ""), "{\"id\":1}"), expected);
    }
}

#[test]
fn under_uuid_only_lower_case_hyphenated_uuids_are_taken() {
    let rows = [
        ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", true),
        ("01932f3e-7b00-7000-8000-000000000000", true),
        ("00000000-0000-0000-0000-000000000000", true),
        ("3F2504E0-4F89-41D3-9A0C-0305E82C3301", false),
        ("3f2504e04f8941d39a0c0305e82c3301", false),
        ("01JCQKWYR00000000000000000", false),
        ("edit-1", false),
    ];
    for (id, fine) in rows {
        let arguments = arguments(&format!("\"{id}\""));
        let expected = if fine { Ok(id) } else { INVALID };
        check(id, admit(IdForm::Uuid, None, &Sources::default(), &arguments), expected);
        check(id, admit(IdForm::Any, None, &Sources::default(), &arguments), Ok(id));
    }
}

#[test]
fn the_first_step_that_refuses_is_the_answer() {
    let bad = "{\"id\":true,\"request_id\":\"e 1\"}";
    let (none, some) = (principal(&[]), principal(&["automation:write"]));
    let near = principal(&["automation", "automation:Write", "automation:write2"]);
    let refused = |who: &Arc<Principal>, arguments: &str| {
        contract(IdForm::Any).admit(who, None, &Sources::default(), value(arguments)).unwrap_err().code()
    };
    assert_eq!(refused(&none, bad), Code::Forbidden, "R7 scope before everything");
    assert_eq!(refused(&near, bad), Code::Forbidden, "a scope is compared whole");
    assert_eq!(refused(&some, bad), Code::InvalidRequestId, "id before arguments");
    assert_eq!(refused(&some, "{\"id\":true}"), Code::RequestIdRequired);
    assert_eq!(refused(&some, "[]"), Code::RequestIdRequired, "no object, no argument");
    assert_eq!(refused(&some, "{\"id\":true,\"request_id\":\"e-1\"}"), Code::InvalidArguments);
}

#[test]
fn the_request_id_is_no_part_of_the_intent() {
    let by_argument =
        admit(IdForm::Any, None, &Sources::default(), "{\"request_id\":\"e-1\",\"id\":1}").unwrap();
    let by_header = admit(IdForm::Any, None, &sources("", &[b"e-2"], ""), "{\"id\":1}").unwrap();
    let (one, other) = (by_argument.live().unwrap(), by_header.live().unwrap());
    assert_eq!(one.intent.text(), "{\"id\":1,\"level\":3}");
    assert_eq!(one.fingerprint, other.fingerprint);
    assert_eq!(by_argument.tool.as_str(), "oldest_name", "the ledger name stands in key and fingerprint");
    assert_eq!(one.intent.argument("request_id"), None);
}

#[test]
fn arguments_are_bound_by_their_declared_type() {
    let text = r#"{"type":"object","properties":{
        "i":{"type":"integer"},"n":{"type":"number"},"s":{"type":"string"},"b":{"type":"boolean"},
        "a":{"type":"array","items":{"type":"number"}},"z":{"type":["string","null"]},"absent":{"type":"string"},
        "o":{"type":"object","properties":{"x":{"type":"integer","default":1}},"default":{}},
        "d":{"type":"number","default":1e1}}}"#;
    let given = r#"{"i":3e1,"n":-0,"s":"\u0061","b":true,"a":[1.0,2e0],"z":null}"#;
    let intent = compiled(text).read(&value(given)).unwrap();
    let rows = [
        ("i", Some(Argument::Integer(30))),
        ("n", Some(Argument::Number(0.0))),
        ("s", Some(Argument::Text("a".into()))),
        ("b", Some(Argument::Boolean(true))),
        ("a", Some(Argument::Json("[1,2]".into()))),
        ("z", Some(Argument::Null)),
        ("absent", Some(Argument::Null)),
        ("o", Some(Argument::Json("{\"x\":1}".into()))),
        ("d", Some(Argument::Number(10.0))),
        ("unheard_of", None),
    ];
    for (name, expected) in rows {
        assert_eq!(intent.argument(name), expected.as_ref(), "{name}");
    }
    let Some(Argument::Number(zero)) = intent.argument("n") else { panic!() };
    assert!(zero.is_sign_positive(), "-0 is bound as 0");
}

/// Who may run, and which revisions read the arguments.
fn readings(pin: Option<&str>, arguments: &str) -> (&'static str, Vec<String>) {
    let call = admit(IdForm::Any, pin, &sources("\"e-1\"", &[], ""), arguments).unwrap();
    let fresh = match call.fresh {
        Fresh::Live(_) => "live",
        Fresh::Misfit(..) => "misfit",
        Fresh::Pinned => "pinned",
    };
    (fresh, call.retired.iter().map(|reading| reading.revision.to_string()).collect())
}

#[test]
fn pins_and_retired_revisions() {
    let (live, old) = ("{\"id\":1}", "{\"name\":\"x\"}");
    assert_eq!(readings(None, live), ("live", vec![]));
    assert_eq!(readings(Some("v2"), live), ("live", vec![]));
    assert_eq!(readings(None, old), ("misfit", vec!["v1".to_owned()]));
    assert_eq!(readings(Some("v1"), old), ("pinned", vec!["v1".to_owned()]));
    let refused = [
        ("the live pin does not try retired schemas", Some("v2"), old, vec!["/name", "/id"]),
        ("a retired pin is judged by its own schema", Some("v1"), live, vec!["/id", "/name"]),
        ("fits none: the live schema's verdict", None, "{}", vec!["/id"]),
        ("a pin that this tool does not have", Some("v9"), live, vec![""]),
    ];
    for (name, pin, arguments, expected) in refused {
        let refusal = admit(IdForm::Any, pin, &sources("\"e-1\"", &[], ""), arguments).unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArguments, "{name}");
        let pointers: Vec<&str> = refusal.fields().iter().map(|field| &*field.pointer).collect();
        assert_eq!(pointers, expected, "{name}");
    }
}

#[test]
fn every_faulty_field_is_named_up_to_the_bound() {
    let open = compiled(r#"{"type":"object"}"#);
    let many: Vec<String> = (0..100).map(|n| format!("\"m{n}\":1")).collect();
    let faults = open.read(&value(&format!("{{{}}}", many.join(",")))).unwrap_err();
    assert_eq!(faults.len(), limits::FIELD_ERRORS);
}

#[test]
fn a_caller_does_not_choose_the_size_of_a_refusal() {
    let long = "x".repeat(100_000);
    let schema = compiled(r#"{"type":"object","properties":{"o":{"type":"object"}}}"#);
    let faults = schema.read(&value(&format!("{{\"o\":{{\"{long}\":1,\"\u{e9}{long}\":2}}}}"))).unwrap_err();
    let pointers: Vec<&str> = faults.iter().map(|fault| &*fault.pointer).collect();
    assert_eq!(pointers, ["/o", "/o"]);
    let at = |length: usize| FieldError::new(&format!("/a/{}", "x".repeat(length - 3)), "").pointer.len();
    assert_eq!(at(limits::POINTER), limits::POINTER, "at the bound a pointer stands whole");
    assert_eq!(at(limits::POINTER + 1), 2, "beyond it, it names what encloses the place");
}

#[test]
fn an_intent_is_bounded_before_it_is_written_out() {
    let default = "x".repeat(100_000);
    let text = format!(
        "{{\"type\":\"object\",\"properties\":{{\"a\":{{\"type\":\"array\",\"items\":{{\"type\":\"object\",\
         \"properties\":{{\"s\":{{\"type\":\"string\",\"default\":\"{default}\"}}}}}}}}}}}}"
    );
    // The last item is faulty, and must not be reached: 20 MB of defaults stand before it.
    let items = vec!["{}"; 200].join(",");
    let faults = compiled(&text).read(&value(&format!("{{\"a\":[{items},0]}}"))).unwrap_err();
    let pointers: Vec<&str> = faults.iter().map(|fault| &*fault.pointer).collect();
    assert_eq!(pointers, [""], "the whole is too large");

    assert!(Intent::of(&"x".repeat(limits::INTENT - 2)).is_ok(), "two quotes");
    assert!(Intent::of(&"x".repeat(limits::INTENT - 1)).unwrap_err().contains("at most"));
}

#[test]
fn the_intent_of_a_handler_of_ones_own() {
    let of = |value: &serde_json::Value| Intent::of(value).map(|intent| intent.text().to_owned());
    let json = serde_json::json!({"b": [1, 1.0, null], "a": "x"});
    assert_eq!(of(&json).as_deref(), Ok("{\"a\":\"x\",\"b\":[1,1.0,null]}"));
    assert_eq!(Intent::of(&u64::MAX).unwrap_err(), "must fit in 64 bits");
    assert_eq!(of(&serde_json::json!({"a": [0, u64::MAX]})).unwrap_err(), "/a/1 must fit in 64 bits");
    assert!(of(&serde_json::json!("a\0b")).is_err());
}
