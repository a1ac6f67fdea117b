//! Names on the wire that clients and servers share.

/// The tool argument that carries the request id.
pub const REQUEST_ID_ARGUMENT: &str = "request_id";
/// The `_meta` member that carries the request id.
pub const META_REQUEST_ID: &str = "dev.counterfoil/request-id";
/// The `_meta` member of a listed tool that takes request ids.
pub const META_REQUEST_IDS: &str = "dev.counterfoil/request-ids";
/// The `_meta` member of `initialize` and `discover` results that names the caller, opaquely.
pub const META_CALLER: &str = "dev.counterfoil/caller";
/// The HTTP header that carries the request id (draft-ietf-httpapi-idempotency-key-header).
pub const HEADER: &str = "idempotency-key";
/// The member of `params` that carries the request id (MCP proposal SEP-3182).
pub const PARAMS_MEMBER: &str = "idempotencyKey";
/// Asks what became of an operation.
pub const OPERATION_STATUS: &str = "operation_status";
/// Records that an operation will never commit.
pub const VOID_OPERATION: &str = "void_operation";
/// Names that SQL may bind and no argument may take: they come from trusted context.
pub const RESERVED: [&str; 5] = ["workspace", "principal", "issuer", "request_id", "now"];
