//! Every bound of the core in one place. The SQL schema repeats those that a stored row must keep, as CHECKs.

/// Longest request id, in ASCII characters.
pub const REQUEST_ID: usize = 64;
/// Longest issuer, subject, workspace or scope, in bytes.
pub const NAME: usize = 512;
/// Longest tool name, in ASCII characters.
pub const TOOL_NAME: usize = 64;
/// Longest revision, in ASCII characters.
pub const REVISION: usize = 32;
/// Largest canonical intent, in bytes.
pub const INTENT: usize = 1 << 20;
/// Largest result that may ever be configured, in bytes.
pub const RESULT_CEILING: usize = 16 << 20;
/// Largest result unless configured, in bytes.
pub const RESULT: usize = 256 << 10;
/// Largest request body unless configured, in bytes.
pub const BODY: usize = 1 << 20;
/// Deepest nesting of arrays and objects unless configured.
pub const NESTING: usize = 64;
/// Most values (members and items together) in one document unless configured.
pub const VALUES: usize = 50_000;
/// Most faulty fields named in one `invalid_arguments`.
pub const FIELD_ERRORS: usize = 32;
/// Longest JSON pointer in a refusal, in bytes.
pub const POINTER: usize = 512;
/// Calls that may wait for the writer unless configured.
pub const QUEUE: usize = 1024;
/// Largest regular expression of a schema, in bytes of its compiled form.
pub const PATTERN: usize = 1 << 20;
