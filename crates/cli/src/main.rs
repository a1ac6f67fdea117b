//! The `counterfoil` command: argument parsing and wiring only.

mod address;
mod call;
mod check;
mod copies;
mod demo;
mod journal;
mod migrate;
mod output;
mod place;
mod progress;
mod proxy;
mod receipts;
mod serve;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tool calls that are safe to retry.
///
/// One TOML file declares tools over your own SQL database; every write leaves a receipt in the same transaction, so
/// that a retry gets the committed result back and nothing runs twice.
#[derive(Debug, Parser)]
#[command(
    name = "counterfoil",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  counterfoil check counterfoil.toml\n  counterfoil serve counterfoil.toml\n  counterfoil receipts list counterfoil.toml"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the tools of a config over MCP
    #[command(
        after_help = "Examples:\n  counterfoil serve counterfoil.toml\n  counterfoil serve counterfoil.toml --listen 127.0.0.1:9000\n  counterfoil serve counterfoil.toml --stdio\n\nThe log goes to standard error. RUST_LOG says how much of it [default: info], as RUST_LOG=warn or RUST_LOG=counterfoil_server=debug.\n\nExit codes: 0 shut down cleanly, 1 the config has errors, 2 wrong arguments, 3 could not serve."
    )]
    Serve(serve::Arguments),
    /// Hold a config against its database and show all that is wrong with it
    #[command(
        after_help = "Example:\n  counterfoil check counterfoil.toml\n\nExit codes: 0 it can be served (there may be warnings), 1 it has errors, 2 wrong arguments, 3 it cannot be read."
    )]
    Check {
        /// The config
        config: PathBuf,
    },
    /// See a lost answer recovered: a server of its own, a cut connection, a retry
    #[command(
        after_help = "Example:\n  counterfoil demo\n\nIt runs on a temporary database, needs no config, and leaves nothing behind. Colours on a terminal, unless NO_COLOR is set.\n\nExit codes: 0 all that it claims happened, 1 something did not, 2 wrong arguments, 3 it could not run, 130 interrupted."
    )]
    Demo,
    /// Call a tool, safely: persisted before it is sent, sent again within bounds, its outcome by exit code
    #[command(
        after_help = call::AFTER_HELP
    )]
    Call(call::Arguments),
    /// Stand between an agent and an MCP server: calls that change something are made once, whatever is lost
    #[command(after_help = proxy::AFTER_HELP)]
    Proxy(proxy::Arguments),
    /// Operations of this side: list them, resume or void what is unknown
    #[command(subcommand, after_help = "Example:\n  counterfoil journal list --open")]
    Journal(journal::Command),
    /// Make the ledger's tables in PostgreSQL as the role that owns them, for a role that only serves
    #[command(
        after_help = "Example:\n  counterfoil migrate counterfoil.toml --owner app_owner --grant-to app\n\nExit codes: 0 the tables are up to date, 2 wrong arguments, 3 they could not be made."
    )]
    Migrate(migrate::Arguments),
    /// What became of operations
    #[command(subcommand, after_help = "Example:\n  counterfoil receipts list counterfoil.toml")]
    Receipts(receipts::Command),
    /// Copy the database while it is used, and read the copy through
    #[command(
        after_help = "Example:\n  counterfoil backup counterfoil.toml --to backup.db\n\nExit codes: 0 the copy is whole, 2 wrong arguments, 3 no copy was made."
    )]
    Backup(copies::Backup),
    /// Put a backup in the database's place, and begin a new epoch
    #[command(
        after_help = "Examples:\n  counterfoil restore counterfoil.toml --from backup.db --replace\n  counterfoil restore counterfoil.toml\n\nStop the servers first. Without --from, the database is in its place already and only a new epoch begins.\n\nExit codes: 0 restored, 2 wrong arguments, 3 nothing was restored."
    )]
    Restore(copies::Restore),
    /// Remove a person's arguments and results, and keep the facts
    #[command(
        after_help = "Example:\n  counterfoil forget counterfoil.toml --subject alice\n\nA retry of theirs is told that it committed and when; it never runs again."
    )]
    Forget(receipts::prune::Forget),
    /// Bearer tokens
    #[command(
        subcommand,
        after_help = "Example:\n  counterfoil token new --subject alice --workspace team-a --scope automation:write"
    )]
    Token(token::Command),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Check { config } => check::check(&config),
        Command::Demo => demo::demo(),
        Command::Call(arguments) => call::run(&arguments),
        Command::Proxy(arguments) => proxy::run(&arguments),
        Command::Journal(command) => journal::run(&command),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Receipts(command) => receipts::run(&command),
        Command::Backup(arguments) => copies::backup(&arguments),
        Command::Restore(arguments) => copies::put_back(&arguments),
        Command::Forget(arguments) => receipts::prune::forget(&arguments),
        Command::Token(command) => token::run(&command),
    };
    outcome.unwrap_or_else(|error| {
        // Every cause on its own: an error never repeats its source.
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        eprintln!("counterfoil: {}", causes.join(": "));
        ExitCode::from(3)
    })
}
