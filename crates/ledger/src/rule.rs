//! Which question of access is asked, and when.

use counterfoil_core::{Call, Reading, Receipt};

/// Which question of access is asked.
#[derive(Debug, Clone, Copy)]
pub enum Rule<'a> {
    /// May this caller touch the resource now?
    Ordinary,
    /// The same operation has committed, as this reading of the arguments: may this caller see its result now?
    Replay(&'a Reading),
}

/// The reading of `call` that this receipt is of, if it is.
pub(crate) fn same_operation<'a>(receipt: Option<&Receipt>, call: &'a Call) -> Option<&'a Reading> {
    let Some(Receipt::Committed(committed)) = receipt else { return None };
    call.under(&committed.revision).filter(|reading| reading.fingerprint == committed.fingerprint)
}
