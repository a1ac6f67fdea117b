//! Every bound of the client in one place. The journal repeats those that a stored row must keep, as CHECKs.

use std::time::Duration;

pub use counterfoil_core::limits::{REQUEST_ID, RESULT_CEILING, TOOL_NAME};

/// Largest arguments of one operation, in bytes.
pub const ARGUMENTS: usize = 1 << 20;
/// Longest server URL, in bytes.
pub const URL: usize = 2048;
/// Longest name of a caller, in bytes.
pub const CALLER: usize = 512;
/// Longest bearer token, in bytes.
pub const TOKEN: usize = 16 << 10;
/// Largest answer of a server, in bytes: the largest result, once as structure and once as text, and its frame.
pub const ANSWER: usize = 3 * RESULT_CEILING;
/// Most values in one answer.
pub const ANSWER_VALUES: usize = 1_000_000;
/// Deepest nesting in one answer: a result's, and its frame's.
pub const ANSWER_NESTING: usize = counterfoil_core::limits::NESTING + 8;
/// Most pages of one listing.
pub const PAGES: usize = 64;
/// Longest word of a server that is shown or kept, in characters.
pub const SHOWN: usize = 500;

/// Tries of one call unless told otherwise.
pub const TRIES: u32 = 5;
/// Time for all tries of one call unless told otherwise.
pub const WITHIN: Duration = Duration::from_secs(60);
/// Time for one try unless told otherwise.
pub const TRY: Duration = Duration::from_secs(30);
/// Time for connecting to a server.
pub const CONNECT: Duration = Duration::from_secs(10);
/// The first pause between two tries, before jitter.
pub const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two tries, before jitter.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a process waits for another one's write to the journal.
pub const JOURNAL_WAIT: Duration = Duration::from_secs(30);
/// How long an ended operation stays in the journal.
pub const KEEP: Duration = Duration::from_secs(30 * 86_400);
/// Most operations that one step of compaction removes.
pub const COMPACT: u32 = 256;
/// Pages that one step of compaction gives back to the file system.
pub const COMPACT_PAGES: u32 = 256;
/// Most operations that one look at a restored server asks about.
pub const RECONCILE: u32 = 100;

/// Largest message of a caller that the proxy takes, in bytes.
pub const FRAME: usize = 16 << 20;
/// Requests that one conversation through the proxy may have open.
pub const OPEN_REQUESTS: usize = 256;
/// Messages that wait for a caller to read them.
pub const UNREAD: usize = 256;
/// Conversations that a listening proxy holds.
pub const CONVERSATIONS: usize = 64;
/// Starts of an upstream command, one after the other, without a sensible word from it; then a pause of
/// [`LONGEST_PAUSE`] between any two.
pub const STARTS: u32 = 5;
/// Lines of an upstream, one after the other, that are no messages; then it is started again.
pub const RUBBISH: u32 = 100;
/// Time that an upstream has to take a message, and to answer a greeting.
pub const GREETING: Duration = Duration::from_secs(30);
/// Time for a call that is sent once, and for whatever else passes through the proxy.
pub const PASS: Duration = Duration::from_secs(60 * 60);
/// Time that an upstream command has to leave after its input has ended.
pub const LEAVE: Duration = Duration::from_secs(2);
/// Most tools that the proxy remembers of one upstream.
pub const TOOLS: usize = 10_000;
/// Longest word by which a transport knows its call, in bytes.
pub const SOURCE: usize = 512;
