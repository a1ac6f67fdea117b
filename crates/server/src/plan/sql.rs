//! One declared statement as text: which names it binds, and whether it is one statement at all.
//!
//! `sqlparser`'s tokenizer finds parameters where they truly are (not in strings, comments or quoted names); the
//! database's own prepare has the last word on everything else.

use std::ops::Range;

use sqlparser::dialect::SQLiteDialect;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::diagnostics::Diagnostic;

/// A parameter of a statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Parameter {
    /// `:name`
    Plain(String),
    /// `:statement.column`
    Dotted(String, String),
}

/// A statement, scanned.
#[derive(Debug)]
pub(super) struct Scanned {
    /// What SQLite prepares: as written, but for `:statement.column`, which becomes `:statement$column`, so that
    /// every place in it is the place in the file.
    pub sql: String,
    /// Every parameter, each once, and where it first stands.
    pub parameters: Vec<(Parameter, Range<usize>)>,
    /// Where each token stands, white space and comments left out.
    tokens: Vec<Range<usize>>,
}

impl Scanned {
    /// Is `:name` among the parameters?
    pub(super) fn binds(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// The token that covers byte `at`; where none does, the byte itself.
    pub(super) fn token_at(&self, at: usize) -> Range<usize> {
        let covers = |token: &&Range<usize>| token.contains(&at);
        let at = at.min(self.sql.len());
        self.tokens.iter().find(covers).cloned().unwrap_or(at..self.sql.len().min(at + 1))
    }

    /// Where the name `word` first stands, quoted or not, whatever its case.
    pub(super) fn word(&self, word: &str) -> Option<Range<usize>> {
        self.tokens.iter().find(|token| self.name(token).eq_ignore_ascii_case(word)).cloned()
    }

    /// Where `name` last stands as a result column, where that is plain to see: in RETURNING, or before FROM.
    pub(super) fn result_word(&self, name: &str) -> Option<Range<usize>> {
        let is = |token: &Range<usize>, word: &str| self.name(token).eq_ignore_ascii_case(word);
        let place = |word: &str| self.tokens.iter().position(|token| is(token, word));
        let columns = match (place("RETURNING"), place("WITH"), place("FROM")) {
            (Some(at), _, _) => &self.tokens[at..],
            (None, None, Some(at)) => &self.tokens[..at],
            (None, _, _) => return None,
        };
        columns.iter().rfind(|token| is(token, name)).cloned()
    }

    /// The names of the plain parameters.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().filter_map(|(parameter, _)| match parameter {
            Parameter::Plain(name) => Some(name.as_str()),
            Parameter::Dotted(..) => None,
        })
    }

    /// A row in the way is deleted without a word: `INSERT OR REPLACE`, `UPDATE OR REPLACE`, `REPLACE INTO`.
    pub(super) fn replaces(&self) -> bool {
        let word = |token: &Range<usize>| self.sql[token.clone()].to_ascii_uppercase();
        let words: Vec<String> = self.tokens.iter().map(word).collect();
        let pair = |pair: &[String]| matches!(pair, [a, b] if a == "OR" && b == "REPLACE" || a == "REPLACE" && b == "INTO");
        words.windows(2).any(pair)
    }

    /// Is it an INSERT, perhaps after a WITH?
    pub(super) fn inserts(&self) -> bool {
        self.word("INSERT").is_some()
    }

    /// The whole statement, without the white space around it.
    pub(super) fn whole(&self) -> Range<usize> {
        let start = self.tokens.first().map_or(0, |token| token.start);
        start..self.tokens.last().map_or(self.sql.len(), |token| token.end)
    }

    /// A token without its quotes.
    fn name(&self, token: &Range<usize>) -> &str {
        self.sql[token.clone()].trim_matches(['"', '`', '[', ']'])
    }
}

/// Scans `sql`, or says what keeps it from being one statement, and where in it.
pub(super) fn scan(sql: &str) -> Result<Scanned, (Diagnostic, Range<usize>)> {
    if let Some(at) = sql.find('\0') {
        // SQLite would take the statement to end here, whatever stands behind.
        return Err((Diagnostic::error("a statement holds no NUL"), at..at + 1));
    }
    let tokens = Tokenizer::new(&SQLiteDialect {}, sql).with_unescape(false).tokenize_with_location();
    let tokens = tokens.map_err(|error| {
        let at = offset(sql, error.location);
        (Diagnostic::error(format!("this is not SQL: {}", error.message)), at..at)
    })?;
    let tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::EOF)).collect();
    one_statement(sql, &tokens)?;
    let solid = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let places = solid.map(|token| span(sql, token)).collect();
    let mut scanned = Scanned { sql: sql.to_owned(), parameters: Vec::new(), tokens: places };
    for at in 0..tokens.len() {
        parameter(sql, &tokens[at..], &mut scanned)?;
    }
    Ok(scanned)
}

type Scan<T> = Result<T, (Diagnostic, Range<usize>)>;

fn span(sql: &str, token: &TokenWithSpan) -> Range<usize> {
    offset(sql, token.span.start)..offset(sql, token.span.end)
}

/// Lines and columns, from 1 and in characters, as a byte offset.
fn offset(sql: &str, at: Location) -> usize {
    let line = usize::try_from(at.line.saturating_sub(1)).unwrap_or(usize::MAX);
    let column = usize::try_from(at.column.saturating_sub(1)).unwrap_or(usize::MAX);
    let start: usize = sql.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = &sql[start.min(sql.len())..];
    start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
}

/// First words a statement may have.
const ALLOWED: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];

/// What to do instead of a statement that begins with `word`.
fn instead(word: &str) -> &'static str {
    match word {
        "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" => {
            "every call has a transaction already: a list of statements commits as one, or not at all"
        }
        "CREATE" | "DROP" | "ALTER" => "tables are made by `[database] schema`, or by migrations of your own",
        "REPLACE" => "write `INSERT … ON CONFLICT (…) DO UPDATE …`",
        _ => "WITH may stand before it; nothing else is run",
    }
}

fn one_statement(sql: &str, tokens: &[TokenWithSpan]) -> Scan<()> {
    let mut meaningful = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let Some(first) = meaningful.next() else {
        return Err((Diagnostic::error("there is no statement here"), 0..sql.len()));
    };
    let word = sql[span(sql, first)].to_uppercase();
    if !ALLOWED.contains(&word.as_str()) {
        let fault = Diagnostic::error("a statement is one SELECT, INSERT, UPDATE or DELETE");
        return Err((fault.help(instead(&word)), span(sql, first)));
    }
    let semicolon = meaningful.by_ref().find(|token| matches!(token.token, Token::SemiColon));
    match (semicolon, meaningful.next()) {
        (Some(_), Some(second)) => {
            let fault = Diagnostic::error("there is a second statement after `;`");
            let help = "a write of several statements is a list: `write = [\"…\", \"…\"]`";
            Err((fault.help(help), span(sql, second)))
        }
        (Some(_) | None, _) => Ok(()),
    }
}

/// Notes the parameter that begins at the first of `tokens`, if one does.
#[expect(clippy::wildcard_enum_match_arm, reason = "only two kinds of token begin a parameter")]
fn parameter(sql: &str, tokens: &[TokenWithSpan], into: &mut Scanned) -> Scan<()> {
    let Some(first) = tokens.first() else { return Ok(()) };
    match &first.token {
        Token::Placeholder(_) | Token::AtSign => {
            let fault = Diagnostic::error("a parameter is written `:name`");
            Err((fault.help("numbered and unnamed parameters are not used"), span(sql, first)))
        }
        Token::Colon => {
            let start = offset(sql, first.span.start);
            let Some(name) = word_at(sql, tokens.get(1), start + 1) else { return Ok(()) };
            let end = start + 1 + name.len();
            let dot =
                tokens.get(2).filter(|token| token.token == Token::Period && span(sql, token).start == end);
            let found = match dot.and_then(|_| word_at(sql, tokens.get(3), end + 1)) {
                Some(column) => {
                    into.sql.replace_range(end..=end, "$");
                    let whole = start..end + 1 + column.len();
                    (Parameter::Dotted(name.to_owned(), column.to_owned()), whole)
                }
                None => (Parameter::Plain(name.to_owned()), start..end),
            };
            if !into.parameters.iter().any(|(parameter, _)| *parameter == found.0) {
                into.parameters.push(found);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The word that begins exactly at byte `at`.
fn word_at<'s>(sql: &'s str, token: Option<&TokenWithSpan>, at: usize) -> Option<&'s str> {
    let token =
        token.filter(|token| matches!(&token.token, Token::Word(word) if word.quote_style.is_none()))?;
    let span = span(sql, token);
    (span.start == at).then(|| &sql[span])
}

impl Parameter {
    /// The name that SQLite knows it by in [`Scanned::sql`].
    pub(super) fn bound_name(&self) -> String {
        match self {
            Parameter::Plain(name) => format!(":{name}"),
            Parameter::Dotted(statement, column) => format!(":{statement}${column}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sql: &str, expected: Result<&[&str], &str>) {
        let got = match scan(sql) {
            Ok(scanned) => Ok(scanned.parameters.iter().map(|(p, _)| p.bound_name()).collect::<Vec<_>>()),
            Err((diagnostic, _)) => Err(diagnostic.message().to_owned()),
        };
        let expected =
            expected.map(|names| names.iter().map(ToString::to_string).collect()).map_err(String::from);
        assert_eq!(got, expected, "{sql}");
    }

    #[test]
    fn only_true_parameters_are_found() {
        let one = "a statement is one SELECT, INSERT, UPDATE or DELETE";
        let cases: &[(&str, Result<&[&str], &str>)] = &[
            ("SELECT :a, :b, :a", Ok(&[":a", ":b"])),
            ("SELECT ':a', \":b\", [:c], `:d` -- :e\n/* :f */ , :g", Ok(&[":g"])),
            ("SELECT 'it''s :a' || :b", Ok(&[":b"])),
            ("SELECT :job.id, :job.name FROM t", Ok(&[":job$id", ":job$name"])),
            ("SELECT 'é', :ä_1x, :id", Ok(&[":ä_1x", ":id"])),
            ("SELECT\n  :a\n, 'x\ny', :b", Ok(&[":a", ":b"])),
            ("SELECT : a", Ok(&[])),
            ("WITH x AS (SELECT 1) SELECT :a;", Ok(&[":a"])),
            ("select 1 ; -- done", Ok(&[])),
            ("SELECT 1; SELECT 2", Err("there is a second statement after `;`")),
            ("SELECT 1;;", Err("there is a second statement after `;`")),
            ("", Err("there is no statement here")),
            ("-- nothing", Err("there is no statement here")),
            ("PRAGMA user_version", Err(one)),
            ("ATTACH 'x' AS y", Err(one)),
            ("BEGIN", Err(one)),
            ("EXPLAIN SELECT 1", Err(one)),
            ("VALUES (1)", Err(one)),
            ("SELECT ?", Err("a parameter is written `:name`")),
            ("SELECT ?1", Err("a parameter is written `:name`")),
            ("SELECT $a", Err("a parameter is written `:name`")),
            ("SELECT @a", Err("a parameter is written `:name`")),
        ];
        for (sql, expected) in cases {
            check(sql, *expected);
        }
    }
}
