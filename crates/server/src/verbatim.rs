//! Carries JSON text through code that would parse it, and out again byte for byte.
//!
//! A committed result is replayed exactly as it was stored. The MCP library holds structured content as a parsed
//! value, which loses the spelling of numbers, and the digits of large ones. So the text travels as one string in a
//! wrapper, and the wrapper is taken off the bytes that leave. It cannot be forged from inside a result: within a
//! JSON string no quote stands without a backslash, so the wrapper's first bytes stand only where a wrapper stands.

use serde_json::{Deserializer, Map, Value};

const NAME: &str = "dev.counterfoil/verbatim";
const OPEN: &str = "{\"dev.counterfoil/verbatim\":";

/// Wraps JSON text. The wrapper is an object, as structured content must be for older protocol revisions.
#[must_use]
pub(crate) fn wrap(json: String) -> Value {
    Value::Object(Map::from_iter([(NAME.to_owned(), Value::String(json))]))
}

/// Takes the wrapper off, if `message` holds one.
#[must_use]
pub(crate) fn unwrap(message: Vec<u8>) -> Vec<u8> {
    open(&message).unwrap_or(message)
}

fn open(message: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(message).ok()?;
    let (before, rest) = text.split_once(OPEN)?;
    let mut strings = Deserializer::from_str(rest).into_iter::<String>();
    let json = strings.next()?.ok()?;
    let after = rest.get(strings.byte_offset()..)?.strip_prefix('}')?;
    Some([before, &json, after].concat().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) {
        let message =
            serde_json::json!({"text": json, "structuredContent": wrap(json.to_owned()), "isError": false});
        let out = unwrap(serde_json::to_vec(&message).unwrap());
        let quoted = serde_json::to_string(json).unwrap();
        let expected = format!("{{\"text\":{quoted},\"structuredContent\":{json},\"isError\":false}}");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn json_comes_out_as_it_went_in() {
        let cases = [
            "{}",
            "{\"result\":{\"n\":12345678901234567890.123,\"m\":1e+21,\"k\":9007199254740993}}",
            "{\"result\":\"quotes \\\" and \\\\ and \\u001f and é\"}",
            "{\"dev.counterfoil/verbatim\":\"{}\"}",
        ];
        for json in cases {
            check(json);
        }
    }

    #[test]
    fn other_messages_are_left_alone() {
        for message in ["", "{}", "{\"text\":\"{\\\"dev.counterfoil/verbatim\\\":\\\"x\\\"}\"}", "\u{e9}"] {
            assert_eq!(unwrap(message.as_bytes().to_vec()), message.as_bytes());
        }
    }
}
