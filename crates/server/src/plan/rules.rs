//! What a config must and should say beyond statements that prepare: errors that `serve` refuses to start on, and
//! warnings, worded "may".

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

use counterfoil_core::{IdForm, Issuer};
use regex::Regex;

use super::probe::Change;
use super::sql::{Language, Parameter, Scanned, scan};
use super::statement::Checked;
use super::tool::Parts;
use super::{Bind, Planner};
use crate::config::{self, Member, Sql, WriteReturns, nearest};
use crate::diagnostics::{Diagnostic, Span};

const A_NEW: &str = r"\b(?:new|fresh|unique|different|random|own)\b";
const ID: &str = r"\b(?:request[ _-]?ids?|ids?|keys?|uuids?)\b";
const EACH: &str = r"\b(?:each|every|per)\b[^.]{0,12}\b(?:call|request|try|attempt|time|invocation|retry)\b";

/// Descriptions that teach the opposite of what makes retries safe, in the two orders of the words.
static NEW_ID_EACH_TIME: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let orders = [
        format!("(?i){A_NEW}[^.]{{0,20}}{ID}[^.]{{0,30}}{EACH}"),
        format!("(?i){EACH}[^.]{{0,30}}{A_NEW}[^.]{{0,20}}{ID}"),
        format!("(?i){ID}[^.]{{0,30}}{A_NEW}[^.]{{0,20}}{EACH}"),
    ];
    orders.iter().filter_map(|order| Regex::new(order).ok()).collect()
});

/// "The id of every request" says what an id is, and gives no advice.
static OF_EACH: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)\bof (?:each|every)\b").ok());

/// What turns such advice into its opposite, right before it.
static NEVER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\b(?:never|not|no|don't|avoid)\b").ok());

impl Planner<'_> {
    pub(super) fn judge_read(
        &mut self,
        tool: &config::Tool,
        read: &config::Read,
        query: Option<&Checked>,
        access: Option<&Checked>,
    ) {
        self.access_binds_issuer(tool, access);
        self.inputs_are_used(tool, &[Some(&read.sql), tool.access.as_ref()]);
        if let Some(query) = query {
            self.outputs_exist(tool, &[query]);
        }
        self.doubt_index(tool.access.as_ref(), access);
        self.doubt_description(tool);
    }

    pub(super) fn judge_write(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        self.access_binds_issuer(tool, parts.access.as_ref());
        for (written, step) in write.statements.iter().zip(&parts.steps) {
            if let Some(step) = step {
                self.judge_step(write, written, step);
            }
        }
        self.must_have_access(tool, parts);
        let written = write.statements.iter().map(|written| Some(&written.sql));
        let asked = [tool.access.as_ref(), write.replay_access.as_ref(), write.current.as_ref()];
        self.inputs_are_used(tool, &written.chain(asked).collect::<Vec<_>>());
        self.doubt_description(tool);
        // What the statements say together is known only if each of them is.
        let steps: Option<Vec<&Checked>> = parts.steps.iter().map(Option::as_ref).collect();
        if let Some(mut results) = steps {
            self.returns_something(write, &results);
            results.extend(&parts.current);
            if write.current.is_none() || parts.current.is_some() {
                self.outputs_exist(tool, &results);
            }
            self.version_is_compared(tool, write, parts);
            self.doubts(tool, write, parts);
        }
    }

    fn must_have_access(&mut self, tool: &config::Tool, parts: &Parts) {
        let changes = parts.steps().find_map(|step| {
            let change = step.facts.changes.iter().find(|(change, _)| *change != Change::Insert);
            change.map(|(_, table)| table)
        });
        if let Some(table) = changes.filter(|_| tool.access.is_none()) {
            let fault = Diagnostic::error("a tool that updates or deletes must declare `access`");
            let help = format!(
                "add a rule such as `access = \"SELECT 1 FROM {table} WHERE id = :id AND workspace_id = :workspace\"`"
            );
            self.report.push(fault.at(tool.name.span.clone(), "").help(help));
        }
    }

    fn judge_step(&mut self, write: &config::Write, written: &config::Statement, step: &Checked) {
        let whole = step.scanned.whole();
        if step.facts.changes.is_empty() {
            let fault = Diagnostic::error("a statement of `write` must be INSERT, UPDATE or DELETE");
            let help = "what only reads belongs into `access`, `current`, or a tool of its own";
            let _reported: Option<()> = self.fault(&written.sql, whole, fault.help(help));
            return;
        }
        if let (Some(name), true) = (&written.name, !step.returns()) {
            let fault = Diagnostic::error("a named statement must return what later ones bind");
            self.report.push(fault.at(name.span.clone(), "").help("add RETURNING, or remove the name"));
        }
        if let Some(may) = written.may_change_nothing.as_ref().filter(|may| may.value)
            && step.binds_argument(&write.version.argument)
        {
            let fault = Diagnostic::error("the statement that holds the version condition must change a row");
            self.report.push(fault.at(may.span.clone(), "").help("remove `may_change_nothing` here"));
        }
    }

    /// A condition on another column than the declared one would be judged by the wrong column.
    fn version_is_compared(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        let (argument, column) = (&write.version.argument, &write.version.column);
        let declared = tool.input.members.iter().any(|member| member.name.value == *argument);
        let holds = |step: &&Checked| step.binds_argument(argument);
        let Some(step) = parts.steps().find(holds).filter(|_| declared) else { return };
        let compared = column.to_ascii_lowercase();
        if parts.steps().filter(holds).any(|step| step.facts.own_reads.contains(&compared)) {
            return;
        }
        let Some(at) =
            parts.steps.iter().position(|part| part.as_ref().is_some_and(|part| std::ptr::eq(part, step)))
        else {
            return;
        };
        let fault = Diagnostic::error(format!("`:{argument}` is not compared with a column `{column}`"));
        let help = format!(
            "write `AND {column} = :{argument}`, or name the column: `version = {{ argument = \"{argument}\", column = \"…\" }}`"
        );
        let part = step.scanned.sql.find(&format!(":{argument}")).map(|at| at..at + argument.len() + 1);
        let _reported: Option<()> =
            self.fault(&write.statements[at].sql, part.unwrap_or(step.scanned.whole()), fault.help(help));
    }

    fn access_binds_issuer(&mut self, tool: &config::Tool, access: Option<&Checked>) {
        if let (Some(sql), Some(access)) = (&tool.access, access)
            && self.config.auth.membership.is_none()
            && !access.binds(&Bind::Issuer)
            && issuers(self.config).len() > 1
        {
            self.must_bind_issuer(sql, &access.scanned, "access");
        }
    }

    pub(super) fn must_bind_issuer(&mut self, sql: &Sql, scanned: &Scanned, place: &str) {
        let fault =
            Diagnostic::error(format!("there are several issuers, and `{place}` does not bind `:issuer`"));
        let help = "the same subject at two issuers is two principals: compare the issuer too";
        let _reported: Option<()> = self.fault(sql, scanned.whole(), fault.help(help));
    }

    fn returns_something(&mut self, write: &config::Write, steps: &[&Checked]) {
        let returning = steps.iter().any(|step| step.returns());
        if !returning && write.returns != WriteReturns::Nothing {
            let fault = Diagnostic::error("this write returns a row, and no statement has RETURNING");
            let help = "add RETURNING, or write `returns = \"nothing\"`";
            self.report.push(fault.at(write.span.clone(), "").help(help));
        }
    }

    /// What a statement names, it uses, whether or not it prepares: a fault elsewhere makes no input superfluous.
    fn inputs_are_used(&mut self, tool: &config::Tool, statements: &[Option<&Sql>]) {
        let scanned: Result<Vec<Scanned>, _> =
            statements.iter().flatten().map(|sql| scan(self.language(), sql)).collect();
        let Ok(scanned) = scanned else { return };
        let bound: Vec<&str> = scanned.iter().flat_map(Scanned::names).collect();
        let inputs = || tool.input.members.iter().map(|member| &member.name);
        // A misspelt parameter has been reported with the name of the input it was meant for.
        let unknown = bound.iter().filter(|name| !inputs().any(|input| input.value == **name));
        let unknown: Vec<&str> =
            unknown.filter(|name| !counterfoil_core::wire::RESERVED.contains(name)).copied().collect();
        for name in inputs() {
            let misspelt = unknown.iter().any(|unknown| nearest(unknown, &[name.as_str()]).is_some());
            if !bound.contains(&name.as_str()) && !misspelt {
                let fault = Diagnostic::error(format!("the input `{}` is bound by no statement", name.value));
                let help = format!("bind it as `:{}`, or remove it", name.value);
                self.report.push(fault.at(name.span.clone(), "").help(help));
            }
        }
    }

    fn outputs_exist(&mut self, tool: &config::Tool, results: &[&Checked]) {
        for (name, _) in &tool.output {
            let columns =
                || results.iter().flat_map(|result| &result.statement.columns).map(|column| &*column.name);
            if columns().all(|column| *column != *name.value) {
                let known: BTreeSet<String> = columns().map(|column| format!("`{column}`")).collect();
                let known = known.into_iter().collect::<Vec<_>>().join(", ");
                let fault = Diagnostic::error(format!("no result column is called `{}`", name.value));
                self.report.push(fault.at(name.span.clone(), "").help(format!("the result has {known}")));
            }
        }
    }

    /// A retired revision without a rule of its own is replayed under the tool's, which its arguments must fill.
    pub(super) fn rule_fits(
        &mut self,
        name: &str,
        sql: &Sql,
        retired: &config::Retired,
        arguments: &[Member],
    ) -> bool {
        // A text that cannot be read has been reported as the tool's.
        let Ok(scanned) = scan(self.language(), sql) else { return false };
        let missing = scanned.parameters.iter().find_map(|(parameter, part)| match parameter {
            Parameter::Plain(name) => {
                let known = arguments.iter().any(|argument| argument.name.value == *name)
                    || counterfoil_core::wire::RESERVED.contains(&name.as_str());
                (!known).then_some((name, part))
            }
            Parameter::Dotted(..) => None,
        });
        if let Some((input, part)) = missing {
            let revision = &retired.revision;
            let message = format!(
                "the retired revision `{}` has no input `{input}`, which `{name}` binds",
                revision.value
            );
            let place = self.config.source.inside(&sql.span, sql, part.clone());
            let fault = Diagnostic::error(message).at(revision.span.clone(), "").at(place, "bound here");
            self.report.push(fault.help("give it a rule of its own: `replay_access = \"SELECT 1 FROM …\"`"));
        }
        missing.is_none()
    }

    /// `[auth]`: somebody must be able to call, and issuers must be told apart.
    pub(super) fn callers(&mut self) {
        let auth = &self.config.auth;
        if auth.tokens.is_empty() && auth.jwt.is_empty() && auth.stdio.is_none() {
            let fault = Diagnostic::error(
                "nobody can call: there is no `[[auth.token]]`, no `[[auth.jwt]]` and no `[auth.stdio]`",
            );
            self.report
                .push(fault.help("`counterfoil token new` makes a token and prints what to write here"));
        }
    }

    /// Without TLS of our own, only this machine may reach the server.
    pub(super) fn listens(&mut self) {
        let server = &self.config.server;
        let open = server.listen.as_ref().filter(|listen| !listen.ip().is_loopback());
        let Some(listen) = open.filter(|_| server.tls.is_none() && !server.behind_proxy) else { return };
        let doubt = Diagnostic::warning(
            "`serve` may refuse: other machines can reach this address, and there is no TLS",
        );
        let help = "add `tls = { cert = \"cert.pem\", key = \"key.pem\" }`, or `behind_proxy = true` if a proxy in front speaks TLS";
        self.report.push(doubt.at(listen.span.clone(), "").help(help));
    }

    /// A scope that no tool asks for lets its holder do nothing: most often it is misspelt.
    pub(super) fn doubt_scopes(&mut self) {
        let asked: BTreeSet<&str> = self.config.tools.iter().map(|tool| tool.scope.as_str()).collect();
        let auth = &self.config.auth;
        let credentials = auth.tokens.iter().map(|token| &token.credentials).chain(&auth.stdio);
        let held = credentials.flat_map(|credentials| &credentials.scopes).chain(&auth.first_scopes);
        for scope in held.filter(|scope| !asked.contains(scope.as_str())) {
            let near = |name: &str| strsim::jaro_winkler(name, scope.as_str());
            let nearest = asked.iter().max_by(|a, b| near(a).total_cmp(&near(b)));
            let help = match nearest {
                Some(name) if near(name) > 0.8 => format!("did you mean `{name}`?"),
                Some(_) | None => "remove it, unless a tool to come will ask for it".to_owned(),
            };
            let message = format!("no tool asks for the scope `{}`", scope.value);
            self.report.push(Diagnostic::warning(message).at(scope.span.clone(), "").help(help));
        }
    }
}

/// Warnings.
impl Planner<'_> {
    fn doubts(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        self.doubt_version(tool, write, parts);
        self.doubt_replay(tool, write, parts);
        self.doubt_identity(write, parts);
        self.doubt_order(write, parts);
        self.doubt_index(tool.access.as_ref(), parts.access.as_ref());
        self.doubt_index(write.replay_access.as_ref(), parts.replay_access.as_ref());
    }

    /// What is doubtful about a table is said once, with every place it concerns.
    fn doubt(&mut self, span: Span, message: String, help: &str) {
        self.report.push_again(Diagnostic::warning(message).at(span, "").help(help));
    }

    /// Where `step` first names `table`.
    fn table_span(&self, sql: &Sql, step: &Checked, table: &str) -> Span {
        let part = step.scanned.word(table).unwrap_or(step.scanned.whole());
        self.config.source.inside(&sql.span, sql, part)
    }

    fn doubt_version(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        let argument = &write.version.argument;
        let versioned = parts.steps().any(|step| step.binds_argument(argument));
        let inserts_only = !parts.changes(Change::Update) && !parts.changes(Change::Delete);
        let uuids = self.config.receipts.ids() == IdForm::Uuid;
        let changes = parts.steps().any(|step| !step.facts.changes.is_empty());
        if versioned || !changes || inserts_only && uuids {
            return;
        }
        let (span, name) = (tool.name.span.clone(), &tool.name.value);
        if inserts_only {
            let message =
                format!("`{name}` may insert twice, or not at all, if callers choose ids carelessly");
            let help = "write `[receipts] request_ids = \"uuid\"`, so that no caller picks an id used before";
            return self.doubt(span, message, help);
        }
        let message =
            format!("`{name}` may change what its caller has not seen: it has no version condition");
        let column = &write.version.column;
        let help = format!(
            "add an input `{argument} = {{ type = \"integer\" }}` and `AND {column} = :{argument}` to the statement"
        );
        self.doubt(span, message, &help);
    }

    /// What the tool itself takes out of its access rule's sight cannot be replayed under that rule.
    fn doubt_replay(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        if write.replay_access.is_some() {
            return;
        }
        let Some(reads) = parts.access.as_ref().map(|access| &access.facts.reads) else { return };
        let hides = |step: &Checked| {
            let deletes =
                |(table, _): &(String, String)| step.facts.touched.contains(&(Change::Delete, table.clone()));
            reads.iter().any(deletes) || !reads.is_disjoint(&step.facts.sets)
        };
        if parts.steps().any(hides) {
            let message = format!(
                "a retry of `{}` may be refused once it has committed: its success changes what `access` reads",
                tool.name.value
            );
            let help = "add `replay_access`, a rule that still holds afterwards";
            self.doubt(tool.name.span.clone(), message, help);
        }
    }

    /// Only a row that is named by its id, or whose id is told, can be mistaken for another.
    fn doubt_identity(&mut self, write: &config::Write, parts: &Parts) {
        let Some(probe) = self.probe else { return };
        for (written, step) in each(write, parts) {
            let tables: BTreeSet<&String> = step.facts.changes.iter().map(|(_, table)| table).collect();
            for table in tables {
                let Some(column) = probe.reusable_id(table) else { continue };
                if !parts.steps().chain(&parts.access).any(|step| step.facts.uses(table, &column)) {
                    continue;
                }
                let span = self.table_span(&written.sql, step, table);
                let (why, help) = probe.identity(&column);
                let message = format!("`{table}.{column}` may name another row after a deletion: {why}");
                self.doubt(span, message, &help);
            }
        }
    }

    /// The rule is asked on every call: without an index, every call reads the whole table.
    pub(super) fn doubt_index(&mut self, sql: Option<&Sql>, rule: Option<&Checked>) {
        let (Some(sql), Some(rule)) = (sql, rule) else { return };
        for table in &rule.facts.unindexed {
            let span = self.table_span(sql, rule, table);
            let message = format!("every call may read all of `{table}`: the rule finds no index");
            let help = format!("CREATE INDEX ON {table} (…), of the columns that the rule compares");
            self.doubt(span, message, &help);
        }
    }

    fn doubt_order(&mut self, write: &config::Write, parts: &Parts) {
        let Some(probe) = self.probe else { return };
        let column = &write.version.column;
        for (written, step) in each(write, parts).filter(|(_, s)| s.binds_argument(&write.version.argument)) {
            let changed: BTreeSet<&String> = step.facts.changes.iter().map(|(_, table)| table).collect();
            let versioned = changed.into_iter().filter(|table| step.facts.uses(table, column));
            for table in versioned.filter(|table| !probe.guarded(table, column)) {
                let span = self.table_span(&written.sql, step, table);
                let message =
                    format!("`{table}.{column}` may go back: nothing in the database refuses a smaller one");
                let help = trigger(step.scanned.language, table, column, &probe.key(table));
                self.doubt(span, message, &help);
            }
        }
    }

    fn doubt_description(&mut self, tool: &config::Tool) {
        let inputs = tool.input.members.iter().map(|member| &member.fragment.description);
        for text in inputs.chain([&tool.description]).flatten() {
            if let Some(part) = teaches_new_ids(text) {
                let message =
                    "this may teach the model a new id for every call, which makes each retry a new change";
                let span = self.config.source.inside(&text.span, text, part);
                self.doubt(span, message.into(), "say nothing of ids: how to use them is added for you");
            }
        }
    }
}

/// What keeps the version of a row from going back, and the row from taking another's name.
fn trigger(language: Language, table: &str, column: &str, key: &[String]) -> String {
    let renamed = |differs: &str| -> String {
        key.iter().map(|id| format!(" OR NEW.{id} {differs} OLD.{id}")).collect()
    };
    // A function may be named in a schema; a trigger is in that of its table.
    let bare = table.rsplit('.').next().unwrap_or(table);
    match language {
        Language::Postgres => format!(
            "CREATE FUNCTION {table}_{column}_rises() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.{column} <= \
             OLD.{column}{} THEN RAISE EXCEPTION '{column} must rise'; END IF; RETURN NEW; END $$; CREATE TRIGGER \
             {bare}_{column}_rises BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_{column}_rises()",
            renamed("<>")
        ),
        Language::Sqlite => format!(
            "CREATE TRIGGER {table}_{column}_rises BEFORE UPDATE ON {table} WHEN NEW.{column} <= OLD.{column}{} \
             BEGIN SELECT RAISE(ABORT, '{column} must rise'); END",
            renamed("IS NOT")
        ),
    }
}

fn each<'a>(
    write: &'a config::Write,
    parts: &'a Parts,
) -> impl Iterator<Item = (&'a config::Statement, &'a Checked)> {
    let all = write.statements.iter().zip(&parts.steps);
    all.filter_map(|(written, step)| Some((written, step.as_ref()?)))
}

fn teaches_new_ids(text: &str) -> Option<Range<usize>> {
    let found = NEW_ID_EACH_TIME.iter().find_map(|wrong| wrong.find(text))?;
    let before: String =
        text[..found.start()].chars().rev().take(24).collect::<String>().chars().rev().collect();
    let forbids = NEVER.as_ref().is_some_and(|never| never.is_match(&before));
    let tells_of = OF_EACH.as_ref().is_some_and(|of| of.is_match(found.as_str()));
    (!forbids && !tells_of).then_some(found.range())
}

pub(super) fn shared(tool: &config::Tool) -> bool {
    tool.shared.as_ref().is_some_and(|shared| shared.value)
}

/// Who vouches for those that may call.
pub(super) fn issuers(config: &config::Config) -> BTreeSet<Option<Issuer>> {
    let tokens = config.auth.tokens.iter().map(|token| &token.credentials);
    let all = tokens.chain(&config.auth.stdio);
    let written = all.map(|credentials| credentials.principal().map(|principal| principal.issuer));
    written.chain(config.auth.jwt.iter().map(|jwt| Some(jwt.issuer.value.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_that_breaks_retries_is_recognised() {
        let cases = [
            ("Use a new request_id for each call.", true),
            ("Generate a fresh UUID per call", true),
            ("Always pass a unique request id for every invocation", true),
            ("Pick a different key every time.", true),
            ("Each call must have a new request id.", true),
            ("Every attempt needs its own unique id", true),
            ("request_id: a random uuid, new on every request", true),
            ("Never use a new id for each call: reuse it for a retry.", false),
            ("Do not make a new request_id per retry", false),
            ("One id per intended change, reuse it for a retry.", false),
            ("Creates a new automation for each call to the team.", false),
            ("Returns the unique id of every automation.", false),
            ("Call it once for each new automation.", false),
            ("The unique id of each request", false),
        ];
        for (text, teaches) in cases {
            assert_eq!(teaches_new_ids(text).is_some(), teaches, "{text}");
        }
    }
}
