//! Hides what looks like a secret before it is drawn.
//!
//! It works on the written text, not on what was parsed: a picture of a syntax error must be as discreet as any
//! other. What is hidden becomes `***` whatever its length, and spans are moved along.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

const HIDDEN: &str = "***";

/// The password of a URL, the value of `password=` in a connection string, and the string given to a key whose
/// name says that it is secret; where a secret is to be found is none. A `sha256` that is not 64 hexadecimal digits is likely the token itself.
const SECRETS: &[&str] = &[
    r#"://[^\s"':/@]*:(?P<secret>[^\s"']+)@"#,
    r#"(?i)password=(?P<secret>[^\s"'&]+)"#,
    r#"(?i)(?:password|passwd|secret|token|bearer|api_?key)(?P<place>\w*)"?[ \t]*=[ \t]*(?:"(?P<secret>[^"\n]+)|'(?P<single>[^'\n]+))"#,
];

/// As above; whether to hide depends on the value.
const HASH: &str = r#"sha256"?[ \t]*=[ \t]*(?:"(?P<secret>[^"\n]+)|'(?P<single>[^'\n]+))"#;

static PATTERNS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| SECRETS.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect());
static HASHES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(HASH).ok());

/// A text with its secrets hidden, which still knows where the bytes of the original went.
pub(super) struct Masked {
    text: String,
    hidden: Vec<Range<usize>>,
}

impl Masked {
    pub(super) fn new(original: &str) -> Self {
        let hidden = secrets(original);
        Masked { text: hide(original, &hidden), hidden }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The part of `span` on its first line, in the masked text: a picture underlines one line, not a whole
    /// statement.
    pub(super) fn first_line(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.moved(span.start);
        let end = self.moved(span.end).max(start);
        let lines = self.text.get(start..end).unwrap_or_default();
        let length = lines.lines().next().map_or(0, |line| line.trim_end().len());
        start..start + length
    }

    /// Where the byte at `offset` of the original now stands.
    fn moved(&self, offset: usize) -> usize {
        let mut moved = offset;
        for secret in &self.hidden {
            if offset >= secret.end {
                moved = moved + HIDDEN.len() - secret.len();
            } else if offset > secret.start {
                moved = moved + HIDDEN.len() - (offset - secret.start);
            }
        }
        moved.min(self.text.len())
    }
}

/// `text` with its secrets hidden.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    let hidden = secrets(text);
    if hidden.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(hide(text, &hidden)) }
}

fn hide(original: &str, hidden: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(original.len());
    let mut from = 0;
    for secret in hidden {
        out.push_str(original.get(from..secret.start).unwrap_or_default());
        out.push_str(HIDDEN);
        from = secret.end;
    }
    out.push_str(original.get(from..).unwrap_or_default());
    out
}

/// The ranges to hide, in order and apart from each other.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let named = PATTERNS.iter().flat_map(|pattern| found(pattern, text));
    let hashes = HASHES.iter().flat_map(|pattern| found(pattern, text)).filter(|range| !is_hash(text, range));
    let mut ranges: Vec<Range<usize>> = named.chain(hashes).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    ranges.into_iter().fold(Vec::new(), merge)
}

fn merge(mut apart: Vec<Range<usize>>, next: Range<usize>) -> Vec<Range<usize>> {
    match apart.last_mut() {
        Some(last) if next.start < last.end => last.end = last.end.max(next.end),
        Some(_) | None => apart.push(next),
    }
    apart
}

fn found(pattern: &Regex, text: &str) -> Vec<Range<usize>> {
    let secret = |c: regex::Captures<'_>| {
        let value = c.name("secret").or(c.name("single"))?;
        let key = c.name("place").map_or("", |key| key.as_str());
        (!is_place(key, value.as_str())).then(|| value.range())
    };
    pattern.captures_iter(text).filter_map(secret).collect()
}

/// Does the key name a file, or a variable of the environment? What cannot be a variable's name is likely the secret
/// itself.
fn is_place(key: &str, value: &str) -> bool {
    let variable = || value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    key.ends_with("_file") || key.ends_with("_env") && variable()
}

fn is_hash(text: &str, range: &Range<usize>) -> bool {
    let value = text.get(range.clone()).unwrap_or_default();
    value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(original: &str, masked: &str) {
        assert_eq!(text(original), masked);
    }

    #[test]
    fn secrets_are_hidden_whatever_their_length() {
        check(r#"url = "postgres://bob:hunter2@db/app""#, r#"url = "postgres://bob:***@db/app""#);
        check(r#"url = "postgres://:p@ss/w:d@db/app""#, r#"url = "postgres://:***@db/app""#);
        check("host=db password=hunter2 user=bob", "host=db password=*** user=bob");
        check(
            r#"url = "postgres://db/app?password=x&sslmode=require""#,
            r#"url = "postgres://db/app?password=***&sslmode=require""#,
        );
        check(r#"token = "cf_abc""#, r#"token = "***""#);
        check("secret_key = 'cf_abc'", "secret_key = '***'");
        check(r#"sha256 = "cf_abc""#, r#"sha256 = "***""#);
        check("url = \"postgres://bob:hunter2@db/app", "url = \"postgres://bob:***@db/app");
    }

    #[test]
    fn where_a_secret_is_to_be_found_is_shown() {
        check(r#"password_env = "DB_PASWORD""#, r#"password_env = "DB_PASWORD""#);
        check("password_file = '/run/secrets/db'", "password_file = '/run/secrets/db'");
        check(r#"password_env = "hunter-2""#, r#"password_env = "***""#);
        check(r#"password_environment = "hunter2""#, r#"password_environment = "***""#);
        check(r#"password = "hunter2" # password_env = "X""#, r#"password = "***" # password_env = "X""#);
    }

    #[test]
    fn what_is_no_secret_is_left_alone() {
        let hash = format!("sha256 = \"{}\"", "0a".repeat(32));
        check(&hash, &hash);
        check(r#"token = { type = "string" }"#, r#"token = { type = "string" }"#);
        check("https://id.example.com:8080/jwks.json", "https://id.example.com:8080/jwks.json");
    }

    #[test]
    fn spans_move_along() {
        let masked = Masked::new("a = \"postgres://u:hunter2@h\" # x");
        assert_eq!(&masked.text()[masked.first_line(&(4..28))], "\"postgres://u:***@h\"");
        assert_eq!(&masked.text()[masked.first_line(&(31..32))], "x");
    }
}
