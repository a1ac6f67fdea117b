//! An outcome as three things: JSON on standard output, words on standard error, an exit code.

use counterfoil_client::answer::Refused;
use counterfoil_client::client::{Unknown, Why};
use counterfoil_client::session::NoAnswer;
use counterfoil_client::{Outcome, Report};
use serde_json::json;

use crate::output::say;

/// Not done.
pub(super) const REFUSED: u8 = 1;
/// Wrong arguments.
pub(super) const USAGE: u8 = 2;
/// It may have been done.
pub(crate) const UNKNOWN: u8 = 4;
/// Nothing was sent.
const NOT_REACHED: u8 = 5;

/// Tells what became of an operation. `given` are the options with which the same caller goes on.
pub(super) fn tell(report: &Report, given: &str) -> anyhow::Result<u8> {
    let id = report.id.as_str();
    let state = |word: &str| json!({"request_id": id, "state": word}).to_string();
    let (text, words, code) = match &report.outcome {
        Outcome::Replied(reply) => {
            let history =
                format!("replayed: this is what {id} did at {}, not what is there now", reply.committed_at);
            (reply.body(), reply.replayed.then_some(history), 0)
        }
        Outcome::Plain(plain) => (plain.result.to_string(), None, if plain.is_error { REFUSED } else { 0 }),
        Outcome::Committed(at) => {
            let at = at.map(|at| at.to_string());
            let text = json!({"request_id": id, "state": "committed", "committed_at": at}).to_string();
            (
                text,
                Some("it committed; its result is not to be had any more: read the current state".into()),
                0,
            )
        }
        Outcome::Refused(refused) => (refused.body.to_string(), Some(refusal(refused)), REFUSED),
        Outcome::Away(away) => (state("refused"), Some(format!("turned away: {}", away.why)), REFUSED),
        Outcome::Voided => {
            (state("voided"), Some(format!("{id} is voided: it has not committed and never will")), REFUSED)
        }
        Outcome::Abandoned { open } => {
            let code = if *open == 0 { REFUSED } else { UNKNOWN };
            (state("abandoned"), Some(format!("{id} was given up, with {open} tries unanswered")), code)
        }
        Outcome::Unknown(unknown) => (unknown_body(id, unknown), Some(way_out(id, unknown, given)), UNKNOWN),
    };
    say(&format!("{text}\n"))?;
    for words in words.iter().chain(&report.unwritten.as_ref().map(ToString::to_string)) {
        eprintln!("counterfoil: {words}");
    }
    Ok(code)
}

fn refusal(refused: &Refused) -> String {
    format!("refused: {} ({})", refused.message, refused.code)
}

fn unknown_body(id: &str, unknown: &Unknown) -> String {
    let body = json!({
        "error": {
            "code": "outcome_unknown",
            "message": reason(&unknown.why),
            "retry": "same_id",
            "operation": if unknown.open == 0 { "not_committed_so_far" } else { "unknown" },
        },
        "request_id": id,
        "unanswered": unknown.open,
    });
    body.to_string()
}

fn reason(why: &Why) -> String {
    match why {
        Why::Bounds(last) => format!("the bounds of tries or time were reached; the last try: {last}"),
        Why::Refused(refused) => format!("an earlier try is unanswered; the last one was {}", refusal(refused)),
        Why::Away(away) => format!("an earlier try is unanswered; the last one was turned away: {}", away.why),
        Why::AtMostOnce => "the server knows no request ids, and a second send could be a second effect: read the current state before you act".into(),
        Why::OtherCaller => "it was begun as another caller, or at another server: nothing was sent".into(),
        Why::NotVoided(failure) => format!("it could not be voided: {failure}"),
        Why::NotWritten(problem) => format!("the last try was refused, which could not be written down: {problem}"),
    }
}

fn way_out(id: &str, unknown: &Unknown, given: &str) -> String {
    let standing = if unknown.open == 0 { "not done so far" } else { "unknown whether it was done" };
    let mut out = format!("{standing}: {}\n  the operation: {id}", reason(&unknown.why));
    match unknown.why {
        Why::AtMostOnce => {
            out.push_str(&format!(
                "\n  when it is settled:         counterfoil journal forget {id} --give-up"
            ));
        }
        Why::Bounds(_)
        | Why::Refused(_)
        | Why::Away(_)
        | Why::OtherCaller
        | Why::NotVoided(_)
        | Why::NotWritten(_) => {
            out.push_str(&format!("\n  to find out, or go on:      counterfoil journal resume {id}{given}"));
            out.push_str(&format!("\n  to make sure it never will: counterfoil journal void {id}{given}"));
        }
    }
    out
}

/// The server was not asked to do anything: a script must be able to tell that from an edit that was refused.
pub(crate) fn not_asked(failure: &NoAnswer) -> u8 {
    eprintln!("counterfoil: nothing was sent: {failure}");
    NOT_REACHED
}

/// A read was not answered.
pub(super) fn not_read(failure: &NoAnswer) -> u8 {
    eprintln!("counterfoil: nothing was done: {failure}");
    match failure {
        NoAnswer::Declined(_) => REFUSED,
        NoAnswer::NotReached | NoAnswer::Lost(_) | NoAnswer::Caller(_) => NOT_REACHED,
    }
}
