//! Reading TOML tables so that nothing in them goes unread.
//!
//! A [`Table`] knows which keys it was asked for. What is left when it is finished is unknown, and the keys asked
//! for are what the author may have meant: the list of known keys cannot drift from the code that reads them.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::{Spanned, units};
use crate::diagnostics::{Diagnostic, Report, Span};

/// A value of the file and what it is called in a message.
#[derive(Clone, Debug)]
pub(super) struct Node<'t> {
    /// `keep`, or the name of a tool or input.
    pub(super) name: String,
    /// Where the name stands; for an item of a list, where the item stands.
    pub(super) key: Span,
    /// It is one of the items of what `name` names.
    item: bool,
    value: &'t DeValue<'t>,
    span: Span,
}

impl<'t> Node<'t> {
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn value(&self) -> &'t DeValue<'t> {
        self.value
    }

    /// What it is called in a message.
    pub(super) fn said(&self) -> String {
        if self.item { format!("an item of `{}`", self.name) } else { format!("`{}`", self.name) }
    }

    /// Says that the value is not of the kind that is wanted.
    pub(super) fn mismatch(&self, wanted: &str) -> Diagnostic {
        Diagnostic::error(format!("{} must be {wanted}", self.said()))
            .at(self.span(), format!("this is {}", kind(self.value)))
    }

    /// Says that the value is wrong for some other reason.
    pub(super) fn fault(&self, message: impl Into<String>, label: impl Into<String>) -> Diagnostic {
        Diagnostic::error(message).at(self.span(), label)
    }

    fn spanned<T>(&self, value: T) -> Spanned<T> {
        Spanned::new(value, self.span())
    }
}

/// What a TOML value is, in words.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a fraction or exponent",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A required key that is not there: one of `names` must be.
struct Missing {
    names: Vec<&'static str>,
    help: String,
}

/// A table being read.
pub(super) struct Table<'t> {
    what: String,
    span: Option<Span>,
    entries: Vec<Node<'t>>,
    known: Vec<&'static str>,
    missing: Vec<Missing>,
}

impl<'t> Table<'t> {
    /// The whole file.
    pub(super) fn root(table: &'t DeTable<'t>) -> Self {
        Self::new("the file".to_owned(), None, table)
    }

    /// The table at `node`, called `what` in messages.
    pub(super) fn open(report: &mut Report, node: &Node<'t>, what: impl Into<String>) -> Option<Self> {
        let table = node.value.as_table();
        if table.is_none() {
            report.push(node.mismatch("a table"));
        }
        table.map(|table| Self::new(what.into(), Some(node.span()), table))
    }

    fn new(what: String, span: Option<Span>, table: &'t DeTable<'t>) -> Self {
        let entry = |(key, value): (&'t toml::Spanned<_>, &'t toml::Spanned<DeValue<'t>>)| Node {
            name: AsRef::<str>::as_ref(key.get_ref()).to_owned(),
            key: key.span(),
            item: false,
            value: value.get_ref(),
            span: value.span(),
        };
        let mut entries: Vec<Node<'t>> = table.iter().map(entry).collect();
        entries.sort_by_key(|node| node.key.start);
        Table { what, span, entries, known: Vec::new(), missing: Vec::new() }
    }

    /// The entries in the order of the file, for tables whose keys are names of the author's choice.
    pub(super) fn into_entries(self) -> Vec<Node<'t>> {
        self.entries
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// Where the table stands.
    pub(super) fn span(&self) -> Option<Span> {
        self.span.clone()
    }

    /// The value of `name`, if it is there.
    pub(super) fn optional(&mut self, name: &'static str) -> Option<Node<'t>> {
        self.know(&[name]);
        self.entries.iter().find(|node| node.name == name).cloned()
    }

    /// The value of `name`, which must be there. `help` says what to add.
    pub(super) fn required(&mut self, name: &'static str, help: &str) -> Option<Node<'t>> {
        let found = self.optional(name);
        if found.is_none() {
            self.require(vec![name], help);
        }
        found
    }

    /// Notes that one of `names` must be there and none is.
    pub(super) fn require(&mut self, names: Vec<&'static str>, help: &str) {
        self.missing.push(Missing { names, help: help.to_owned() });
    }

    /// Takes `names` for known without reading them, when what they belong to is wrong already.
    pub(super) fn know(&mut self, names: &[&'static str]) {
        let fresh: Vec<_> = names.iter().filter(|name| !self.known.contains(name)).collect();
        self.known.extend(fresh);
    }

    /// Drops an entry that has been answered.
    pub(super) fn forget(&mut self, node: &Node<'_>) {
        self.entries.retain(|entry| entry.key != node.key);
    }

    /// Entries nobody has asked for yet.
    pub(super) fn unread(&self) -> Vec<Node<'t>> {
        self.entries.iter().filter(|node| !self.known.contains(&node.name.as_str())).cloned().collect()
    }

    /// Answers `name`, if it is there, with `diagnostic` instead of reading it; says whether it was there.
    pub(super) fn refuse(
        &mut self,
        report: &mut Report,
        name: &'static str,
        diagnostic: impl Fn(&Node<'t>) -> Diagnostic,
    ) -> bool {
        // Not among the known keys: a refused key is nothing to suggest.
        let (refused, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(|node| node.name == name);
        self.entries = rest;
        for node in &refused {
            report.push(diagnostic(node));
        }
        !refused.is_empty()
    }

    /// Reports what is unknown and what is missing. A key that is missing because it is misspelt is reported
    /// once, as the misspelling.
    pub(super) fn finish(self, report: &mut Report) {
        let mut meant = Vec::new();
        for node in self.unread() {
            let near = nearest(&node.name, &self.known);
            meant.extend(near);
            report.push(self.unknown(&node, near));
        }
        let spelt = |missing: &&Missing| !missing.names.iter().any(|name| meant.contains(name));
        for missing in self.missing.iter().filter(spelt) {
            report.push(self.missing(missing));
        }
    }

    fn unknown(&self, node: &Node<'t>, near: Option<&str>) -> Diagnostic {
        let diagnostic = Diagnostic::error(format!("unknown key `{}` in {}", node.name, self.what))
            .at(node.key.clone(), "");
        match near {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("known here: {}", listed(&self.known))),
        }
    }

    fn missing(&self, missing: &Missing) -> Diagnostic {
        // At the top of the file every key is a table.
        let quoted =
            |name: &&str| if self.span.is_some() { format!("`{name}`") } else { format!("`[{name}]`") };
        let names: Vec<String> = missing.names.iter().map(quoted).collect();
        let diagnostic = Diagnostic::error(format!("{} has no {}", self.what, names.join(" and no ")));
        let diagnostic = match &self.span {
            Some(span) => diagnostic.at(span.clone(), ""),
            None => diagnostic,
        };
        diagnostic.help(missing.help.clone())
    }
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The candidate that `word` was probably meant to be: the same but for case and separators, a few letters away,
/// or longer by the rest of the word.
pub(crate) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '_'], "");
    let wanted = plain(word);
    let distance = |candidate: &&&'c str| strsim::damerau_levenshtein(&wanted, &plain(candidate));
    let near = |candidate: &&&'c str| distance(candidate) <= wanted.len().max(3) / 3;
    let close = candidates.iter().filter(near).min_by_key(distance);
    let longer = |candidate: &&&'c str| wanted.len() >= 3 && plain(candidate).starts_with(&wanted);
    close.or_else(|| candidates.iter().find(longer)).copied()
}

/// Reads a string that says something.
pub(super) fn text(report: &mut Report, node: &Node<'_>) -> Option<Spanned<String>> {
    let Some(text) = node.value.as_str() else {
        report.push(node.mismatch("a string"));
        return None;
    };
    if text.trim().is_empty() {
        report.push(node.fault(format!("{} is empty", node.said()), ""));
        return None;
    }
    Some(node.spanned(text.to_owned()))
}

/// Reads a string and then what it says.
pub(super) fn parsed<T>(
    report: &mut Report,
    node: &Node<'_>,
    parse: impl FnOnce(&str) -> Result<T, Diagnostic>,
) -> Option<Spanned<T>> {
    let text = text(report, node)?;
    match parse(&text) {
        Ok(value) => Some(Spanned::new(value, text.span)),
        Err(diagnostic) => {
            report.push(diagnostic.at(text.span, ""));
            None
        }
    }
}

/// Reads one of a few words.
pub(super) fn choice<T: Copy>(
    report: &mut Report,
    node: &Node<'_>,
    choices: &[(&'static str, T)],
) -> Option<Spanned<T>> {
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let one_of = format!("one of {}", quoted.join(", "));
    let Some(text) = node.value.as_str() else {
        report.push(node.mismatch(&one_of));
        return None;
    };
    let found = choices.iter().find(|(name, _)| *name == text);
    if found.is_none() {
        let fault = node.fault(format!("{} must be {one_of}", node.said()), "");
        report.push(match nearest(text, &names) {
            Some(near) => fault.help(format!("did you mean \"{near}\"?")),
            None => fault,
        });
    }
    found.map(|(_, value)| node.spanned(*value))
}

/// Reads `true` or `false`.
pub(super) fn boolean(report: &mut Report, node: &Node<'_>) -> Option<Spanned<bool>> {
    let value = node.value.as_bool();
    if value.is_none() {
        report.push(node.mismatch("true or false"));
    }
    value.map(|value| node.spanned(value))
}

/// Reads a 64-bit integer.
pub(super) fn integer(report: &mut Report, node: &Node<'_>) -> Option<Spanned<i64>> {
    let Some(written) = node.value.as_integer() else {
        report.push(node.mismatch("an integer"));
        return None;
    };
    let value = i64::from_str_radix(written.as_str(), written.radix()).ok();
    if value.is_none() {
        report.push(node.fault(format!("{} does not fit into 64 bits", node.said()), ""));
    }
    value.map(|value| node.spanned(value))
}

/// Reads an integer within `range`.
pub(super) fn count(
    report: &mut Report,
    node: &Node<'_>,
    range: RangeInclusive<i64>,
) -> Option<Spanned<u32>> {
    let value = integer(report, node)?;
    let fits = u32::try_from(value.value).ok().filter(|_| range.contains(&value.value));
    if fits.is_none() {
        let message = format!("`{}` must be from {} to {}", node.name, range.start(), range.end());
        report.push(node.fault(message, ""));
    }
    fits.map(|value| node.spanned(value))
}

/// Reads a duration within `range`.
pub(super) fn duration(
    report: &mut Report,
    node: &Node<'_>,
    range: RangeInclusive<Duration>,
) -> Option<Spanned<Duration>> {
    let example = if *range.end() < Duration::from_secs(3_600) { "5s" } else { "30d" };
    let value = measure(report, node, &format!("a duration such as \"{example}\""), units::duration)?;
    if range.contains(&value) {
        return Some(value);
    }
    report.push(if value.is_zero() {
        let message = format!("`{}` must not be zero", node.name);
        node.fault(message, "").help(format!("the least is \"{}\"", units::show_duration(*range.start())))
    } else {
        let (least, most) = (units::show_duration(*range.start()), units::show_duration(*range.end()));
        node.fault(format!("`{}` must be from \"{least}\" to \"{most}\"", node.name), "")
    });
    None
}

/// Reads a size in bytes within `range`.
pub(super) fn size(report: &mut Report, node: &Node<'_>, range: RangeInclusive<u64>) -> Option<Spanned<u64>> {
    let value = measure(report, node, "a size such as \"256KiB\"", units::size)?;
    let fits = range.contains(&value);
    if !fits {
        let (least, most) = (units::show_size(*range.start()), units::show_size(*range.end()));
        report.push(node.fault(format!("`{}` must be from \"{least}\" to \"{most}\"", node.name), ""));
    }
    fits.then_some(value)
}

fn measure<T>(
    report: &mut Report,
    node: &Node<'_>,
    wanted: &str,
    parse: fn(&str) -> Result<T, String>,
) -> Option<Spanned<T>> {
    let Some(text) = node.value.as_str() else {
        let example = node.value.as_integer().and_then(|integer| parse(integer.as_str()).err());
        let fault = node.mismatch(wanted);
        report.push(match example {
            Some(help) => fault.help(help),
            None => fault,
        });
        return None;
    };
    match parse(text) {
        Ok(value) => Some(node.spanned(value)),
        Err(help) => {
            report.push(node.fault(format!("`{}` must be {wanted}", node.name), "").help(help));
            None
        }
    }
}

/// The items of a list; each is called like the list in messages.
pub(super) fn list<'t>(report: &mut Report, node: &Node<'t>) -> Option<Vec<Node<'t>>> {
    let Some(items) = node.value.as_array() else {
        report.push(node.mismatch("a list"));
        return None;
    };
    let item = |item: &'t toml::Spanned<DeValue<'t>>| Node {
        name: node.name.clone(),
        key: item.span(),
        item: true,
        value: item.get_ref(),
        span: item.span(),
    };
    Some(items.iter().map(item).collect())
}

/// Reads every item of a list; all faulty ones are reported.
pub(super) fn every<'t, T>(
    report: &mut Report,
    node: &Node<'t>,
    mut read: impl FnMut(&mut Report, &Node<'t>) -> Option<T>,
) -> Option<Vec<T>> {
    let items = list(report, node)?;
    let read: Vec<Option<T>> = items.iter().map(|item| read(report, item)).collect();
    read.into_iter().collect()
}
