//! What a receipt is found by.

use counterfoil_core::{Call, Principal, RequestId, ToolName};

/// (workspace, issuer, subject, tool's ledger name, request id): never the revision, so that a retry which crosses
/// a deploy finds its receipt.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Whose operation.
    pub principal: &'a Principal,
    /// Of which tool, by its ledger name.
    pub tool: &'a ToolName,
    /// Which operation.
    pub request_id: &'a RequestId,
}

impl<'a> From<&'a Call> for Key<'a> {
    fn from(call: &'a Call) -> Self {
        Self { principal: &call.principal, tool: &call.tool, request_id: &call.request_id }
    }
}
