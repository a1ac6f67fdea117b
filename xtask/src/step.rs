//! Running other programs: the workspace's root, cargo itself, and a command that must succeed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the workspace, which is the parent of this crate.
pub(crate) fn root() -> PathBuf {
    root_of(std::env::var_os("CARGO_MANIFEST_DIR"))
}

/// Cargo says at run time which crate it runs. The path of the compilation is only for a binary started by hand: two
/// checkouts that share a target directory share the binary, and the one would be checked in place of the other.
fn root_of(running: Option<OsString>) -> PathBuf {
    let here = PathBuf::from(running.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()));
    here.parent().map_or(here.clone(), Path::to_owned)
}

/// The cargo that runs us, so that a toolchain override reaches the commands we start.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Run a command with our own output streams; anything but success is an error that names it.
pub(crate) fn must_succeed(mut command: Command) -> Result<()> {
    let shown = show(&command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Whether a command can be started and succeeds; what it prints is thrown away.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// A command as a person would type it, without the directory of the program.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_that_of_the_checkout_that_runs() {
        assert_eq!(root_of(Some("elsewhere/xtask".into())), Path::new("elsewhere"));
        assert!(root_of(None).join("xtask/Cargo.toml").exists());
    }
}
