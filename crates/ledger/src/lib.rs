//! Receipts in the caller's own database transaction.
