//! A complete small program: a service with handlers of its own, whose tool calls are safe to retry.
//!
//! `cargo run -p counterfoil --example library` runs it on a temporary database.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use counterfoil::Fault;
use counterfoil::core::{
    Call, Intent, Issuer, Principal, Refusal, Reply, RequestId, Revision, Subject, ToolName, Workspace,
};
use counterfoil::rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use counterfoil::sqlite::{Ledger, Options, Turn};
use serde::Serialize;

/// What the caller asks for: the canonical form of it is what makes two calls the same.
#[derive(Clone, Serialize)]
struct Rename {
    id: i64,
    expected_version: i64,
    name: &'static str,
}

/// What the tool returns, now and on every replay.
#[derive(Serialize)]
struct Renamed {
    id: i64,
    version: i64,
}

/// May the caller touch the row *now*?
fn access(tx: &Connection, workspace: &Workspace, id: i64) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM lists WHERE id = ?1 AND workspace = ?2";
    Ok(tx.query_row(sql, (id, workspace.as_str()), |_| Ok(())).optional()?.is_some())
}

/// Writes only if the row is still as the caller saw it.
fn rename(tx: &Connection, workspace: &Workspace, ask: &Rename) -> Result<Renamed, Fault> {
    let sql = "UPDATE lists SET name = ?4, version = version + 1
                WHERE id = ?1 AND workspace = ?2 AND version = ?3 RETURNING id, version";
    let parameters = (ask.id, workspace.as_str(), ask.expected_version, ask.name);
    let read = |row: &counterfoil::rusqlite::Row<'_>| Ok(Renamed { id: row.get(0)?, version: row.get(1)? });
    let renamed = tx.query_row(sql, parameters, read).optional()?;
    renamed.ok_or_else(|| Refusal::version_conflict(None).into())
}

/// The paved path: the ledger owns the transaction, and calls that wait together are committed together.
async fn paved(ledger: &Ledger, call: Call, ask: Rename) -> Result<Reply, Refusal> {
    let here = call.principal.workspace.clone();
    let (there, id) = (here.clone(), ask.id);
    ledger.run(call, move |tx| access(tx, &here, id), move |tx| rename(tx, &there, &ask)).await
}

/// The same in a transaction of one's own, for programs that have one already.
fn in_own_transaction(
    ledger: &Ledger,
    connection: &mut Connection,
    call: &Call,
    ask: &Rename,
) -> Result<Reply, Fault> {
    let workspace = &call.principal.workspace;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !access(&tx, workspace, ask.id)? {
        return Err(Refusal::resource_unavailable().into());
    }
    let reply = match ledger.begin_tx(&tx, call)? {
        Turn::Replay(reply) => reply,
        Turn::Fresh(permit) => permit.record(&rename(&tx, workspace, ask)?)?,
    };
    tx.commit()?;
    Ok(reply)
}

/// One call of `rename_list` by `caller`. The request id is the caller's: chosen before the first try, and the same
/// in every retry.
fn call(caller: &Arc<Principal>, request_id: &str, ask: &Rename) -> Result<Call, Box<dyn Error>> {
    let (tool, revision) = (ToolName::parse("rename_list")?, Revision::parse("v1")?);
    Ok(Call::new(Arc::clone(caller), tool, revision, RequestId::parse(request_id)?, Intent::of(ask)?))
}

/// Runs the story on the database at `path`, and tells it line by line.
pub(crate) async fn story(path: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "CREATE TABLE lists (id INTEGER PRIMARY KEY, workspace TEXT, name TEXT, version INTEGER);
         INSERT INTO lists VALUES (1, 'team-a', 'groceries', 1)",
    )?;
    let ledger = Ledger::open(path, Options::default())?;
    // Who calls comes from your authentication, never from the call.
    let alice = Arc::new(Principal {
        issuer: Issuer::parse("local")?,
        subject: Subject::parse("alice")?,
        workspace: Workspace::parse("team-a")?,
        scopes: BTreeSet::new(),
    });
    let mut lines = Vec::new();

    let ask = Rename { id: 1, expected_version: 1, name: "shopping" };
    let first = paved(&ledger, call(&alice, "rename-1", &ask)?, ask.clone()).await?;
    lines.push(format!("first try:  {}", first.body()));
    // The reply was lost, so the client sends the same call again: the version check alone would refuse it now.
    let again = paved(&ledger, call(&alice, "rename-1", &ask)?, ask.clone()).await?;
    lines.push(format!("retry:      {}", again.body()));

    let ask = Rename { id: 1, expected_version: 2, name: "errands" };
    let same = call(&alice, "rename-2", &ask)?;
    let first = in_own_transaction(&ledger, &mut connection, &same, &ask)?;
    lines.push(format!("second one: {}", first.body()));
    let again = in_own_transaction(&ledger, &mut connection, &same, &ask)?;
    lines.push(format!("retry:      {}", again.body()));

    let other = Rename { name: "other", ..ask };
    if let Err(refusal) = paved(&ledger, call(&alice, "rename-2", &other)?, other).await {
        lines.push(format!("id reused:  {}", refusal.body()));
    }
    ledger.close();
    Ok(lines)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    for line in story(&directory.path().join("lists.db")).await? {
        println!("{line}");
    }
    Ok(())
}
