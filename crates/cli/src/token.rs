//! `counterfoil token`: making bearer tokens, of which a config holds only the hash.

use std::process::ExitCode;

use rand::RngExt as _;
use rand::distr::Alphanumeric;
use sha2::{Digest, Sha256};

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
        #[arg(long, default_value = "SUBJECT")]
        subject: String,
        /// The tenant they act in
        #[arg(long, default_value = "WORKSPACE")]
        workspace: String,
        /// What they may do; may be given more than once
        #[arg(long = "scope", value_name = "SCOPE", default_value = "SCOPE")]
        scopes: Vec<String>,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let Command::New { subject, workspace, scopes } = command;
    let secret: String = rand::rng().sample_iter(Alphanumeric).take(LENGTH).map(char::from).collect();
    let token = format!("cf_{secret}");
    let hash: String = Sha256::digest(&token).iter().map(|byte| format!("{byte:02x}")).collect();
    let quoted = |text: &String| serde_json::Value::from(text.as_str()).to_string();
    let scopes: Vec<String> = scopes.iter().map(quoted).collect();
    eprintln!("The token, shown once and stored nowhere:\n\n    {token}\n\nThe stanza for the config:\n");
    println!("[[auth.token]]");
    println!("sha256    = \"{hash}\"");
    println!("subject   = {}", quoted(subject));
    println!("workspace = {}", quoted(workspace));
    println!("scopes    = [{}]", scopes.join(", "));
    Ok(ExitCode::SUCCESS)
}
