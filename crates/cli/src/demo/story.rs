//! The story, step by step. Each step prints what it sends and gets, and checks all that it claims.

use std::io::Write;
use std::time::Instant;

use anyhow::Context as _;
use counterfoil::rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::client::{self, Answer, Client};
use super::cut::Cut;
use super::page::Page;
use super::stage::Scene;

const WRITE: &str = "set_interval";
const READ: &str = "get_automation";
/// The change that the story is about.
const EDIT: &str = "edit-42";

/// The version-guarded update of the example's tool, without a receipt.
const BARE: &str =
    "UPDATE automations SET interval_minutes = 30, version = version + 1 WHERE id = ?1 AND version = 1";

/// Tells the whole story.
///
/// # Errors
/// The first claim that does not hold, or whatever else went wrong.
pub(super) fn tell<W: Write>(page: &mut Page<W>, scene: &Scene) -> anyhow::Result<()> {
    let since = Instant::now();
    page.line("Counterfoil: a tool call that is safe to retry.")?;
    page.line(format_args!(
        "This is a server of its own ({}) on a temporary copy of examples/automations.",
        scene.server
    ))?;
    let lost = cut_off(page, scene)?;
    without_receipts(page, scene)?;
    recovered(page, scene, &lost)?;
    history(page, scene)?;
    reused(page, scene)?;
    status(page, scene)?;
    let seconds = since.elapsed().as_secs_f64();
    page.line(format_args!("\nAll {} claims held, in {seconds:.2} s.", page.held()))?;
    Ok(())
}

/// Steps 1 and 2: a read, a write, and an answer that is lost after the commit.
fn cut_off<W: Write>(page: &mut Page<W>, scene: &Scene) -> anyhow::Result<Answer> {
    let alice = Client::alice(scene.address);
    page.heading("1. Alice reads the automation that she wants to change.")?;
    let read = call(page, &alice, READ, &json!({ "id": 1 }))?;
    page.claim("it runs every 15 minutes, at version 1", row(15, 1), result(&read))?;

    page.heading(
        "2. She changes it. The change commits, and the connection ends before the answer arrives.",
    )?;
    let cut = Cut::before(scene.address)?;
    let arguments = edit();
    sending(page, &alice, WRITE, &arguments)?;
    let answer = Client::alice(cut.address).call(WRITE, &arguments)?;
    let heard = answer.map_or(Value::Null, |answer| answer.value);
    if heard.is_null() {
        page.got("nothing: the connection ended")?;
    } else {
        page.got(&heard)?;
    }
    page.claim("she has no answer", Value::Null, heard)?;
    let lost = client::read(&cut.lost()?)?;
    page.claim("and yet the database has the change, at version 2", row(30, 2), stored(scene, 1)?)?;
    Ok(lost)
}

/// Step 3: what a version check by itself can tell, on a row that she changed and on one that she did not.
fn without_receipts<W: Write>(page: &mut Page<W>, scene: &Scene) -> anyhow::Result<()> {
    page.heading(
        "3. Did it succeed? The version check alone cannot tell (plain SQL, straight on the file).",
    )?;
    let hers = bare(page, scene, "alice, again", 1)?;
    page.claim("her retry is refused, because of her own change", json!(0), json!(hers))?;
    let bobs = bare(page, scene, "bob", 2)?;
    page.claim("bob changes automation 2, which she has never touched", json!(1), json!(bobs))?;
    let after_bob = bare(page, scene, "alice", 2)?;
    page.claim("there she is refused just the same, because of bob's", json!(hers), json!(after_bob))
}

/// Step 4: the same call, the same id.
fn recovered<W: Write>(page: &mut Page<W>, scene: &Scene, lost: &Answer) -> anyhow::Result<()> {
    page.heading("4. With Counterfoil she sends the same call again: same arguments, same request_id.")?;
    let reply = call(page, &Client::alice(scene.address), WRITE, &edit())?;
    page.claim("replayed from its receipt, not run again", json!(true), member(&reply, "replayed"))?;
    let bytes = json!(reply.result());
    page.claim("the result is that of the lost answer, byte for byte", json!(lost.result()), bytes)?;
    let when = member(&reply, "committed_at");
    page.claim("and so is the time of its commit", member(lost, "committed_at"), when)?;
    page.claim("the row is still at version 2", row(30, 2), stored(scene, 1)?)?;
    page.claim("there is one receipt", json!([EDIT]), receipts(scene)?)
}

/// Step 5: a later change of someone else's, and the first one once more.
fn history<W: Write>(page: &mut Page<W>, scene: &Scene) -> anyhow::Result<()> {
    page.heading("5. Bob changes it too. Then Alice's program, restarted, sends its old call once more.")?;
    let arguments =
        json!({ "request_id": "edit-43", "id": 1, "expected_version": 2, "interval_minutes": 60 });
    let fresh = call(page, &Client::bob(scene.address), WRITE, &arguments)?;
    page.claim("bob's change is new: version 3", json!([row(60, 3), false]), outcome(&fresh))?;
    let old = call(page, &Client::alice(scene.address), WRITE, &edit())?;
    page.claim("her call is answered with history: version 2", json!([row(30, 2), true]), outcome(&old))?;
    page.claim("current is the present: version 3", row(60, 3), member(&old, "current"))?;
    page.claim("the row stays at version 3", row(60, 3), stored(scene, 1)?)
}

/// Step 6: an id is the name of one change, and of no other.
fn reused<W: Write>(page: &mut Page<W>, scene: &Scene) -> anyhow::Result<()> {
    page.heading("6. She takes the old id for another change.")?;
    let arguments = json!({ "request_id": EDIT, "id": 1, "expected_version": 3, "interval_minutes": 45 });
    let refusal = call(page, &Client::alice(scene.address), WRITE, &arguments)?;
    let code = refusal.value.pointer("/error/code").cloned().unwrap_or_default();
    page.claim("refused: an id names one change", json!("request_id_reused"), code)?;
    page.claim("the row stays at version 3", row(60, 3), stored(scene, 1)?)?;
    page.claim("there are two receipts, edit-42 and edit-43", json!([EDIT, "edit-43"]), receipts(scene)?)
}

/// Step 7: the question by itself.
fn status<W: Write>(page: &mut Page<W>, scene: &Scene) -> anyhow::Result<()> {
    page.heading("7. Or she only asks.")?;
    let arguments = json!({ "tool": WRITE, "operation": EDIT });
    let known = call(page, &Client::alice(scene.address), "operation_status", &arguments)?;
    page.claim("edit-42 committed", json!("committed"), member(&known, "state"))
}

fn edit() -> Value {
    json!({ "request_id": EDIT, "id": 1, "expected_version": 1, "interval_minutes": 30 })
}

fn sending<W: Write>(page: &mut Page<W>, who: &Client, tool: &str, arguments: &Value) -> anyhow::Result<()> {
    Ok(page.sent(format_args!("{}: {tool} {arguments}", who.name))?)
}

fn call<W: Write>(page: &mut Page<W>, who: &Client, tool: &str, arguments: &Value) -> anyhow::Result<Answer> {
    sending(page, who, tool, arguments)?;
    let answer = who.call(tool, arguments)?.context("the connection ended before an answer came")?;
    page.got(&answer.value)?;
    Ok(answer)
}

/// Automation 1 as tools and database show it.
fn row(interval: i64, version: i64) -> Value {
    json!({ "id": 1, "interval_minutes": interval, "version": version })
}

fn member(answer: &Answer, name: &str) -> Value {
    answer.value.get(name).cloned().unwrap_or_default()
}

fn result(answer: &Answer) -> Value {
    member(answer, "result")
}

fn outcome(answer: &Answer) -> Value {
    json!([result(answer), member(answer, "replayed")])
}

/// What the database itself says, asked on a connection that has nothing to do with the server.
fn stored(scene: &Scene, id: i64) -> anyhow::Result<Value> {
    let sql = "SELECT interval_minutes, version FROM automations WHERE id = ?1";
    let found = open(scene)?.query_row(sql, [id], |found| Ok((found.get(0)?, found.get(1)?)));
    let (interval, version): (i64, i64) = found.context("the row cannot be read")?;
    Ok(json!({ "id": id, "interval_minutes": interval, "version": version }))
}

/// The request ids of all receipts, in order.
fn receipts(scene: &Scene) -> anyhow::Result<Value> {
    let connection = open(scene)?;
    let mut query = connection.prepare("SELECT request_id FROM counterfoil_receipts ORDER BY request_id")?;
    let ids = query.query_map([], |found| found.get(0))?.collect::<Result<Vec<String>, _>>();
    Ok(json!(ids.context("the receipts cannot be read")?))
}

fn bare<W: Write>(page: &mut Page<W>, scene: &Scene, who: &str, id: i64) -> anyhow::Result<usize> {
    page.sent(format_args!("{who}: {}", BARE.replace("?1", &id.to_string())))?;
    let changed = open(scene)?.execute(BARE, [id]).context("the bare UPDATE failed")?;
    page.got(format_args!("{changed} row{} changed", if changed == 1 { "" } else { "s" }))?;
    Ok(changed)
}

fn open(scene: &Scene) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(&scene.database, flags).context("the database cannot be opened")
}
