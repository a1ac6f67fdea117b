//! One page per code, compiled in: a code without a page does not build.

use crate::refusal::Code;

/// The page of one code, by the name of its file.
macro_rules! page {
    ($name:literal) => {
        include_str!(concat!("../errors/", $name, ".md"))
    };
}

impl Code {
    /// What this refusal means, what it tells of the operation, what to do next, and an example: Markdown.
    #[must_use]
    pub fn page(self) -> &'static str {
        match self {
            Code::Forbidden => page!("forbidden"),
            Code::RequestIdRequired => page!("request_id_required"),
            Code::InvalidRequestId => page!("invalid_request_id"),
            Code::InvalidArguments => page!("invalid_arguments"),
            Code::ResourceUnavailable => page!("resource_unavailable"),
            Code::RequestIdReused => page!("request_id_reused"),
            Code::RevisionChanged => page!("revision_changed"),
            Code::RequestIdVoided => page!("request_id_voided"),
            Code::RequestIdExpired => page!("request_id_expired"),
            Code::VersionConflict => page!("version_conflict"),
            Code::PreconditionFailed => page!("precondition_failed"),
            Code::ConstraintViolated => page!("constraint_violated"),
            Code::ResultTooLarge => page!("result_too_large"),
            Code::Busy => page!("busy"),
            Code::RateLimited => page!("rate_limited"),
            Code::OutcomeUnknown => page!("outcome_unknown"),
            Code::Internal => page!("internal"),
        }
    }
}
