//! Rules about single Rust files: how they open, how long their functions are, what they must not mention.

use proc_macro2::{Ident, Spacing, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Macro, Signature, TraitItemFn};

use super::{Problem, tree::Tree};

/// The most lines a function may have, from its signature to its closing brace.
const MOST_LINES: usize = 70;
/// The only file that knows the MCP SDK.
const KNOWS_RMCP: &str = "crates/server/src/mcp.rs";
/// Macros that mean "not finished".
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];

/// A function with a body, and how many lines it takes.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) file: String,
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

pub(super) fn check(tree: &Tree) -> (Vec<Problem>, Vec<Function>) {
    let mut problems = Vec::new();
    let mut functions = Vec::new();
    for (file, text) in tree.ending(".rs") {
        problems.extend(opening(file, text));
        let Some((tokens, parsed)) = parse(text) else {
            problems.push(unreadable(file));
            continue;
        };
        mentions(tokens, &mut |ident, called| problems.extend(mention(file, ident, called)));
        functions.extend(functions_of(file, &parsed));
    }
    problems.extend(functions.iter().filter(|function| function.lines > MOST_LINES).map(too_long));
    (problems, functions)
}

fn parse(text: &str) -> Option<(TokenStream, syn::File)> {
    let tokens: TokenStream = text.parse().ok()?;
    Some((tokens.clone(), syn::parse2(tokens).ok()?))
}

fn opening(file: &str, text: &str) -> Option<Problem> {
    let tidy = text.starts_with("//!");
    (!tidy).then(|| Problem {
        place: format!("{file}:1"),
        what: "does not open with `//!`".into(),
        why: "a reader learns from the first line what the file is for",
        instead: "say it in a sentence above everything else".into(),
    })
}

fn unreadable(file: &str) -> Problem {
    Problem {
        place: file.into(),
        what: "is not a Rust file that syn can read".into(),
        why: "what cannot be read cannot be checked",
        instead: "make it parse, or give it another extension if it is not Rust".into(),
    }
}

fn too_long(function: &Function) -> Problem {
    Problem {
        place: format!("{}:{}", function.file, function.line),
        what: format!(
            "function `{}` is {} lines long; {MOST_LINES} is the most",
            function.name, function.lines
        ),
        why: "one function is read on one screen",
        instead: "split it: name each part by what it decides or does; a table of cases becomes a const"
            .into(),
    }
}

/// Call `see` with every identifier of the code, macros included and comments not; true: it is called as a macro.
fn mentions(tokens: TokenStream, see: &mut impl FnMut(&Ident, bool)) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) => see(&ident, tokens.peek().is_some_and(bang)),
            TokenTree::Group(group) => mentions(group.stream(), see),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The `!` of a macro call, not of `!=`.
fn bang(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '!' && punct.spacing() == Spacing::Alone)
}

fn mention(file: &str, ident: &Ident, called: bool) -> Option<Problem> {
    let place = format!("{file}:{}", ident.span().start().line);
    if ident == "rmcp" && file != KNOWS_RMCP {
        return Some(Problem {
            place,
            what: "mentions rmcp".into(),
            why: "the SDK is pinned to the minor and will change: one file pays for it",
            instead: format!("put the call behind a function or type of {KNOWS_RMCP}"),
        });
    }
    let unfinished = called && UNFINISHED.iter().any(|name| ident == name);
    unfinished.then(|| Problem {
        place,
        what: format!("calls `{ident}!`"),
        why: "what is merged is finished",
        instead: "write it, or take it out; for a trace use `tracing`".into(),
    })
}

fn functions_of(file: &str, parsed: &syn::File) -> Vec<Function> {
    let mut finder = Finder { file, found: Vec::new() };
    finder.visit_file(parsed);
    finder.found
}

struct Finder<'tree> {
    file: &'tree str,
    found: Vec<Function>,
}

impl Finder<'_> {
    fn add(&mut self, signature: &Signature, body: &Block) {
        let line = first_line(signature);
        let lines = body.brace_token.span.close().end().line + 1 - line;
        self.found.push(Function { file: self.file.into(), name: signature.ident.to_string(), line, lines });
    }
}

/// Where the signature starts: at its first qualifier, if it has one.
fn first_line(signature: &Signature) -> usize {
    let qualifiers: [Option<Span>; 4] = [
        signature.constness.map(|token| token.span),
        signature.asyncness.map(|token| token.span),
        signature.unsafety.map(|token| token.span),
        Some(signature.fn_token.span),
    ];
    qualifiers.into_iter().flatten().map(|span| span.start().line).min().unwrap_or(1)
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(body) = &item.default {
            self.add(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    /// A macro whose body reads as items (`thread_local!`, many of our own) may hold functions too.
    fn visit_macro(&mut self, call: &'ast Macro) {
        if let Ok(items) = syn::parse2::<syn::File>(call.tokens.clone()) {
            self.found.extend(functions_of(self.file, &items));
        }
    }
}
