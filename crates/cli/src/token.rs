//! `counterfoil token`: making bearer tokens, of which a config holds only the hash.

use std::process::ExitCode;

use counterfoil_core::{Scope, Subject, Workspace};
use rand::RngExt as _;
use rand::distr::Alphanumeric;
use sha2::{Digest, Sha256};

use crate::output::say;

/// Characters of a token: more than 250 bits.
const LENGTH: usize = 43;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a token, and the stanza that lets it call
    #[command(
        after_help = "Example:\n  counterfoil token new --subject alice --workspace team-a --scope automation:write >> counterfoil.toml\n\nThe token goes to standard error, the stanza to standard output."
    )]
    New {
        /// Who calls with it
        #[arg(long, value_parser = Subject::parse)]
        subject: Subject,
        /// The tenant they act in
        #[arg(long, value_parser = Workspace::parse)]
        workspace: Workspace,
        /// What they may do; may be given more than once
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = Scope::parse)]
        scopes: Vec<Scope>,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let Command::New { subject, workspace, scopes } = command;
    let secret: String = rand::rng().sample_iter(Alphanumeric).take(LENGTH).map(char::from).collect();
    let token = format!("cf_{secret}");
    let hash: String = Sha256::digest(&token).iter().map(|byte| format!("{byte:02x}")).collect();
    let scopes: Vec<String> = scopes.iter().map(|scope| quoted(scope.as_str())).collect();
    eprintln!(
        "The token, shown once and stored nowhere:\n\n    {token}\n\nIts stanza for the config goes to standard output."
    );
    // It begins with an empty line, so that it can be appended to any file.
    say(&format!(
        "\n[[auth.token]]\nsha256    = \"{hash}\"\nsubject   = {}\nworkspace = {}\nscopes    = [{}]\n",
        quoted(subject.as_str()),
        quoted(workspace.as_str()),
        scopes.join(", ")
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// A TOML string: JSON's escapes are among TOML's, which also wants DEL escaped.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
