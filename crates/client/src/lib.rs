//! The client half: journal, retry, transport. Its room is built by a later issue.
