//! Pictures of mistakes: what is wrong, where it stands in the file, and what to write instead.
//!
//! Everything that reads a config collects [`Diagnostic`]s in a [`Report`], so that one run shows all that is
//! wrong, in the order of the file. The pictures are drawn by `annotate-snippets`. Whatever looks like a secret is
//! masked before it is drawn: a picture ends up in logs and bug reports.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str};

mod mask;

use mask::Masked;

/// A range of bytes in the source text.
pub type Span = Range<usize>;

/// A text being read, and the name it is shown under.
#[derive(Clone)]
pub struct Source {
    name: Arc<str>,
    text: Arc<str>,
}

impl Source {
    /// A source called `name` (usually the path as the user typed it).
    pub fn new(name: &str, text: &str) -> Self {
        Source { name: name.into(), text: text.into() }
    }

    /// The name it is shown under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where `part` of the string `value` stands, when `value` was written at `span`.
    ///
    /// A string written without escapes stands in the file as it is, so a fault found at some byte of an SQL
    /// statement can be shown at that byte of the file. With escapes the whole string is shown.
    pub fn inside(&self, span: &Span, value: &str, part: Range<usize>) -> Span {
        let written = self.text.get(span.clone()).unwrap_or_default();
        match written.find(value) {
            Some(at) if !value.is_empty() && part.end <= value.len() => {
                span.start + at + part.start..span.start + at + part.end
            }
            Some(_) | None => span.clone(),
        }
    }
}

impl fmt::Debug for Source {
    /// The name alone: the text may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The config cannot be served.
    Error,
    /// The config can be served and may not do what its author expects.
    Warning,
}

/// A place in the source and what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The bytes underlined.
    pub span: Span,
    /// What is said beside the underline; may be empty.
    pub text: String,
}

/// A sentence below the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Footer {
    /// What to do.
    Help(String),
    /// Why it is so.
    Note(String),
}

/// One mistake, or one doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    severity: Severity,
    message: String,
    labels: Vec<Label>,
    footers: Vec<Footer>,
}

impl Diagnostic {
    /// A mistake that keeps the config from being served.
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Severity::Error, message.into())
    }

    /// A doubt worth a word.
    pub fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message.into())
    }

    fn new(severity: Severity, message: String) -> Self {
        Diagnostic { severity, message, labels: Vec::new(), footers: Vec::new() }
    }

    /// Underlines `span`. The first label is the place of the mistake, later ones show what it collides with.
    #[must_use]
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.footers.push(Footer::Help(text.into()));
        self
    }

    /// Adds why it is so.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.footers.push(Footer::Note(text.into()));
        self
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The places it is about, the place of the mistake first.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// What is said below the picture.
    pub fn footers(&self) -> &[Footer] {
        &self.footers
    }

    fn position(&self) -> Option<usize> {
        self.labels.first().map(|label| label.span.start)
    }
}

/// All that is wrong with one source.
#[derive(Clone, Debug)]
pub struct Report {
    source: Source,
    diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// An empty report about `source`.
    pub fn new(source: Source) -> Self {
        Report { source, diagnostics: Vec::new() }
    }

    /// The source it is about.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Adds a diagnostic, once. The order of pushing matters only between diagnostics about the same place.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Adds a diagnostic; if the same has been said of other places, its places are added to those.
    pub fn push_again(&mut self, diagnostic: Diagnostic) {
        let same = |known: &&mut Diagnostic| {
            (&known.message, &known.footers) == (&diagnostic.message, &diagnostic.footers)
        };
        match self.diagnostics.iter_mut().find(same) {
            Some(known) => {
                let fresh = diagnostic.labels.into_iter().filter(|label| !known.labels.contains(label));
                known.labels.extend(fresh.collect::<Vec<_>>());
            }
            None => self.push(diagnostic),
        }
    }

    /// Adds everything `other` holds; both must be about the same source.
    pub fn append(&mut self, other: Report) {
        self.diagnostics.extend(other.diagnostics);
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// How many errors.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// How many warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count()
    }

    /// The diagnostics in the order of the source; those about no place come first.
    pub fn diagnostics(&self) -> Vec<&Diagnostic> {
        let mut ordered: Vec<&Diagnostic> = self.diagnostics.iter().collect();
        ordered.sort_by_key(|diagnostic| diagnostic.position());
        ordered
    }

    /// The pictures without colour, for pipes and logs.
    pub fn plain(&self) -> String {
        self.render(&Renderer::plain())
    }

    /// The pictures in colour, for a terminal.
    pub fn coloured(&self) -> String {
        self.render(&Renderer::styled())
    }

    fn render(&self, renderer: &Renderer) -> String {
        let masked = Masked::new(self.source.text());
        let mut out = String::new();
        for diagnostic in self.diagnostics() {
            let group = picture(&self.source, &masked, diagnostic);
            out.push_str(&renderer.render(&[group]));
            out.push_str("\n\n");
        }
        out.push_str(&self.summary());
        out
    }

    /// One line that counts: `automations.toml: 2 errors, 1 warning`.
    pub fn summary(&self) -> String {
        let counts = [plural(self.errors(), "error"), plural(self.warnings(), "warning")];
        let said: Vec<String> = counts.into_iter().flatten().collect();
        let said = if said.is_empty() { "nothing wrong".to_owned() } else { said.join(", ") };
        format!("{}: {said}\n", normalize_untrusted_str(self.source.name()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain())
    }
}

impl std::error::Error for Report {}

fn plural(count: usize, word: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {word}")),
        n => Some(format!("{n} {word}s")),
    }
}

fn picture<'a>(source: &'a Source, masked: &'a Masked, diagnostic: &'a Diagnostic) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let group = Group::with_title(level.primary_title(mask::text(&diagnostic.message)));
    let group = if diagnostic.labels.is_empty() {
        group.element(Origin::path(source.name()))
    } else {
        group.element(snippet(source, masked, &diagnostic.labels))
    };
    group.elements(diagnostic.footers.iter().map(footer))
}

fn snippet<'a>(
    source: &'a Source,
    masked: &'a Masked,
    labels: &'a [Label],
) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    let annotations = labels.iter().enumerate().map(|(nth, label)| {
        let kind = if nth == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
        let text = (!label.text.is_empty()).then(|| mask::text(&label.text));
        kind.span(masked.first_line(&label.span)).label(text)
    });
    Snippet::source(masked.text()).path(source.name()).annotations(annotations)
}

fn footer(footer: &Footer) -> annotate_snippets::Message<'_> {
    match footer {
        Footer::Help(text) => Level::HELP.message(normalize_untrusted_str(&mask::text(text))),
        Footer::Note(text) => Level::NOTE.message(normalize_untrusted_str(&mask::text(text))),
    }
}
