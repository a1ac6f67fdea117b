//! One declared statement as text: which names it binds, and whether it is one statement at all.
//!
//! `sqlparser`'s tokenizer finds parameters where they truly are (not in strings, comments or quoted names); the
//! database's own prepare has the last word on everything else.

use std::collections::BTreeSet;
use std::ops::Range;

use sqlparser::dialect::{Dialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::diagnostics::Diagnostic;

/// Whose SQL it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Sqlite,
    Postgres,
}

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
    /// every place in it is the place in the file. For PostgreSQL as written.
    pub sql: String,
    /// Whose SQL it is.
    pub language: Language,
    /// Every parameter, each once, and where it first stands.
    pub parameters: Vec<(Parameter, Range<usize>)>,
    /// Every place of every parameter, in order.
    occurrences: Vec<(Parameter, Range<usize>)>,
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

/// A statement with its parameters numbered, as PostgreSQL wants them.
#[derive(Debug, Clone)]
pub(super) struct Numbered {
    pub sql: String,
    /// What `$1`, `$2` … are.
    pub parameters: Vec<Parameter>,
    /// Where each `$n` stands, and which of them it is, from 0.
    pub slots: Vec<(Range<usize>, usize)>,
    /// Where pieces of it begin, here and as written.
    places: Vec<(usize, usize)>,
}

impl Numbered {
    /// Where byte `at` stands as written.
    pub(super) fn written(&self, at: usize) -> usize {
        let piece = self.places.iter().rev().find(|(here, _)| *here <= at);
        piece.map_or(0, |(here, written)| written + (at - here))
    }
}

impl Scanned {
    /// Numbers the parameters: each its own number, or, `apart`, each place of each. `cast` says what type one has
    /// that the database could not know.
    pub(super) fn numbered(&self, apart: bool, cast: &dyn Fn(&Parameter) -> Option<String>) -> Numbered {
        let mut numbered =
            Numbered { sql: String::new(), parameters: Vec::new(), slots: Vec::new(), places: vec![(0, 0)] };
        let mut from = 0;
        for (parameter, place) in &self.occurrences {
            numbered.sql.push_str(&self.sql[from..place.start]);
            numbered.places.push((numbered.sql.len(), place.start));
            let known = numbered.parameters.iter().position(|known| known == parameter);
            let number = known.filter(|_| !apart).unwrap_or_else(|| {
                numbered.parameters.push(parameter.clone());
                numbered.parameters.len() - 1
            });
            let kind = cast(parameter).map(|kind| format!("::{kind}")).unwrap_or_default();
            // White space in front: `:a` may follow a word that `$1` would not end.
            let start = numbered.sql.len() + 1;
            numbered.sql.push_str(&format!(" ${}{kind} ", number + 1));
            numbered.slots.push((start..numbered.sql.len() - kind.len() - 1, number));
            numbered.places.push((numbered.sql.len(), place.end));
            from = place.end;
        }
        let end = self.whole().end.max(from);
        let rest = self.sql[from..end].trim_end_matches([';', ' ', '\n', '\t', '\r']);
        numbered.sql.push_str(rest);
        numbered
    }

    /// Every token as written.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|token| &self.sql[token.clone()])
    }

    /// Does `*` stand for columns somewhere?
    pub(super) fn star(&self) -> bool {
        let words: Vec<String> = self.tokens().map(str::to_ascii_uppercase).collect();
        let before = ["RETURNING", "SELECT", "ALL", "DISTINCT", ",", "."];
        words.windows(2).any(|pair| pair[1] == "*" && before.contains(&pair[0].as_str()))
    }

    /// Where the `at`-th token stands.
    pub(super) fn place(&self, at: usize) -> Range<usize> {
        self.tokens.get(at).cloned().unwrap_or(self.whole())
    }
}

/// Scans `sql`, or says what keeps it from being one statement, and where in it.
pub(super) fn scan(language: Language, sql: &str) -> Result<Scanned, (Diagnostic, Range<usize>)> {
    if let Some(at) = sql.find('\0') {
        // SQLite would take the statement to end here, whatever stands behind.
        return Err((Diagnostic::error("a statement holds no NUL"), at..at + 1));
    }
    let dialect: &dyn Dialect = match language {
        Language::Sqlite => &SQLiteDialect {},
        Language::Postgres => &PostgreSqlDialect {},
    };
    let tokens = Tokenizer::new(dialect, sql).with_unescape(false).tokenize_with_location();
    let tokens = tokens.map_err(|error| {
        let at = offset(sql, error.location);
        (Diagnostic::error(format!("this is not SQL: {}", error.message)), at..at)
    })?;
    let tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::EOF)).collect();
    one_statement(language, sql, &tokens)?;
    let solid = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let places = solid.map(|token| span(sql, token)).collect();
    let mut scanned = Scanned {
        sql: sql.to_owned(),
        language,
        parameters: Vec::new(),
        occurrences: Vec::new(),
        tokens: places,
    };
    let slices = slices(&tokens);
    for at in (0..tokens.len()).filter(|at| !slices.contains(at)) {
        parameter(sql, &tokens[at..], &mut scanned)?;
    }
    Ok(scanned)
}

/// The colons of array slices, `[1:n]`: inside brackets, behind a value.
#[expect(clippy::wildcard_enum_match_arm, reason = "few kinds of token end a value")]
fn slices(tokens: &[TokenWithSpan]) -> BTreeSet<usize> {
    let (mut depth, mut value, mut found) = (0_usize, false, BTreeSet::new());
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LBracket => depth += 1,
            Token::RBracket => depth = depth.saturating_sub(1),
            Token::Colon if depth > 0 && value => {
                found.insert(at);
            }
            _ => {}
        }
        value = match &token.token {
            Token::Whitespace(_) => value,
            Token::Word(_) | Token::Number(..) | Token::RParen | Token::RBracket => true,
            _ => false,
        };
    }
    found
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
fn instead(language: Language, word: &str) -> &'static str {
    match word {
        "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" => {
            "every call has a transaction already: a list of statements commits as one, or not at all"
        }
        "CREATE" | "DROP" | "ALTER" if language == Language::Postgres => {
            "tables are made by migrations of the application's own"
        }
        "CREATE" | "DROP" | "ALTER" => "tables are made by `[database] schema`, or by migrations of your own",
        "REPLACE" => "write `INSERT … ON CONFLICT (…) DO UPDATE …`",
        _ => "WITH may stand before it; nothing else is run",
    }
}

fn one_statement(language: Language, sql: &str, tokens: &[TokenWithSpan]) -> Scan<()> {
    let mut meaningful = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let Some(first) = meaningful.next() else {
        return Err((Diagnostic::error("there is no statement here"), 0..sql.len()));
    };
    let word = sql[span(sql, first)].to_uppercase();
    if !ALLOWED.contains(&word.as_str()) {
        let fault = Diagnostic::error("a statement is one SELECT, INSERT, UPDATE or DELETE");
        return Err((fault.help(instead(language, &word)), span(sql, first)));
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
        Token::AtSign if into.language == Language::Postgres => Ok(()),
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
                    if into.language == Language::Sqlite {
                        into.sql.replace_range(end..=end, "$");
                    }
                    let whole = start..end + 1 + column.len();
                    (Parameter::Dotted(name.to_owned(), column.to_owned()), whole)
                }
                None => (Parameter::Plain(name.to_owned()), start..end),
            };
            into.occurrences.push(found.clone());
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

    fn check(language: Language, sql: &str, expected: Result<&[&str], &str>) {
        let got = match scan(language, sql) {
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
            check(Language::Sqlite, sql, *expected);
        }
    }

    #[test]
    fn parameters_of_postgresql() {
        let cases: &[(&str, Result<&[&str], &str>)] = &[
            (
                "SELECT ':a', \":b\", $$:c$$, $t$ :d $t$, E'\\':e', U&':f' -- :g\n/* /* :h */ :i */ , :j",
                Ok(&[":j"]),
            ),
            ("SELECT :a::text, x::int, :b :: date, 'a'::text", Ok(&[":a", ":b"])),
            ("SELECT tags[1:2], tags[1:n], tags[:a], tags[f(1):2] FROM t", Ok(&[":a"])),
            ("SELECT tags[1: :n], tags[:a : :b] FROM t", Ok(&[":n", ":a", ":b"])),
            ("SELECT a @> b, @ c, d ? 'e', f ->> 'g', ARRAY[:h, :i] FROM t", Ok(&[":h", ":i"])),
            ("SELECT :job.id, :job.name FROM t", Ok(&[":job$id", ":job$name"])),
            ("SELECT $1", Err("a parameter is written `:name`")),
            ("COPY t TO STDOUT", Err("a statement is one SELECT, INSERT, UPDATE or DELETE")),
            ("SELECT 1; SELECT 2", Err("there is a second statement after `;`")),
        ];
        for (sql, expected) in cases {
            check(Language::Postgres, sql, *expected);
        }
    }

    #[test]
    fn parameters_are_numbered() {
        let cases = [
            (false, "SELECT :a, :b::text, :a;", "SELECT  $1 ,  $2 ::text,  $1", "::text"),
            (true, "SELECT :a, ':b', :a -- :c", "SELECT  $1 , ':b',  $2", "':b'"),
            (false, "SELECT :now - $$:x$$ ; ", "SELECT  $1::timestamptz  - $$:x$$", "$$:x$$"),
        ];
        for (apart, written, expected, piece) in cases {
            let scanned = scan(Language::Postgres, written).unwrap_or_else(|(fault, _)| panic!("{fault:?}"));
            let cast = |parameter: &Parameter| {
                (*parameter == Parameter::Plain("now".into())).then(|| "timestamptz".to_owned())
            };
            let numbered = scanned.numbered(apart, &cast);
            assert_eq!(numbered.sql.trim_end(), expected);
            let at = numbered.sql.find(piece).map(|here| numbered.written(here));
            assert_eq!(at, scanned.sql.find(piece), "where {piece} stands in {written}");
        }
    }
}
