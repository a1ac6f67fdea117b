//! Which statements a database was sent, read from the log of its server.

use super::cluster::Cluster;
use super::database::Database;

/// Does something, and tells which statements of `database` ran meanwhile, in their order, until its sessions were idle
/// again. Statements are logged once the database has been told `log_statement = 'all'`; no other database of this
/// process may be.
pub fn traced<T>(database: &Database, act: impl FnOnce() -> T) -> (T, Vec<String>) {
    idle(database);
    let before = Cluster::shared().log().len();
    let done = act();
    idle(database);
    (done, statements(&Cluster::shared().log()[before..]))
}

/// A rollback may still be on its way when the answer is there.
fn idle(database: &Database) {
    while database.busy() {
        std::thread::yield_now();
    }
}

/// Without times, sessions, names of prepared statements and parameters. A line that goes on begins with a tab.
fn statements(log: &str) -> Vec<String> {
    let (mut all, mut open) = (Vec::<String>::new(), false);
    for line in log.lines() {
        if let Some(more) = line.strip_prefix('\t') {
            if let Some(last) = all.last_mut().filter(|_| open) {
                last.push_str(&format!("\n{more}"));
            }
            continue;
        }
        let said = line.split_once("] LOG:  ").map(|(_, said)| said);
        let said = said.filter(|said| said.starts_with("execute ") || said.starts_with("statement: "));
        open = said.is_some();
        all.extend(said.and_then(|said| said.split_once(": ")).map(|(_, sql)| sql.to_owned()));
    }
    all
}
