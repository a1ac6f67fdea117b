//! What is known of an operation: one pure function from a state and an event to a state.
//!
//! A refusal speaks of one try. What decides is therefore how many tries are *open*: sent, and never answered. While
//! one is open, an operation ends only on a reply, on word that it committed, or on word that it was voided.

use std::num::NonZeroU32;

use counterfoil_core::Operation as Known;

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// On disk. It may be sent; no try is open.
    Ready,
    /// Sent, and somebody waits for the answer, or died waiting.
    Sent {
        /// Tries without an answer.
        open: NonZeroU32,
    },
    /// The caller was told that nobody knows. It may be sent again, voided or abandoned.
    Unknown {
        /// Tries without an answer; with none, the operation has not been done so far.
        open: u32,
    },
    /// Answered. The reply is in the journal.
    Replied,
    /// It committed; its result is not to be had any more.
    Committed,
    /// Every try was refused: it was not done, and will not be.
    Refused,
    /// It has not committed and never will: the server said so.
    Voided,
    /// The caller gave it up: it will not be sent again.
    Abandoned {
        /// Tries without an answer; with none, it was not done.
        open: u32,
    },
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// It was put on disk.
    Recorded,
    /// A try is about to leave.
    Sent,
    /// An answer to it came.
    Replied,
    /// A try was answered by a refusal: that try wrote nothing.
    Refused {
        /// What the refusal says of the operation as a whole.
        known: Option<Known>,
        /// The advice is to send the same again.
        again: bool,
    },
    /// A try ended without an answer, or the tries came to their bound.
    Unknown,
    /// The server recorded that it will never commit.
    Voided,
    /// The caller gave it up.
    Abandoned,
}

/// An event that cannot follow: somebody broke a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// There is no such operation yet, or it is there already.
    #[error("the operation is not recorded, or recorded twice")]
    Unrecorded,
    /// It has ended: it is not sent again.
    #[error("the operation has ended and is not sent again")]
    Ended,
    /// The answer to a try that was never sent.
    #[error("a refusal came for a try that was not sent")]
    Unasked,
    /// Both committed and voided.
    #[error("the server has said both that the operation committed and that it never will")]
    Contradiction,
}

impl State {
    /// Nothing will be sent for it again.
    #[must_use]
    pub fn ended(self) -> bool {
        match self {
            State::Ready | State::Sent { .. } | State::Unknown { .. } => false,
            State::Replied | State::Committed | State::Refused | State::Voided | State::Abandoned { .. } => {
                true
            }
        }
    }

    /// Tries without an answer. None are counted once the outcome is a fact.
    #[must_use]
    pub fn open(self) -> u32 {
        match self {
            State::Sent { open } => open.get(),
            State::Unknown { open } | State::Abandoned { open } => open,
            State::Ready | State::Replied | State::Committed | State::Refused | State::Voided => 0,
        }
    }

    /// The state as the journal writes it, its open tries beside it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Sent { .. } => "sent",
            State::Unknown { .. } => "unknown",
            State::Replied => "replied",
            State::Committed => "committed",
            State::Refused => "refused",
            State::Voided => "voided",
            State::Abandoned { .. } => "abandoned",
        }
    }

    /// Reads what [`State::as_str`] and [`State::open`] wrote.
    #[must_use]
    pub fn parse(word: &str, open: u32) -> Option<Self> {
        Some(match word {
            "ready" => State::Ready,
            "sent" => State::Sent { open: NonZeroU32::new(open)? },
            "unknown" => State::Unknown { open },
            "replied" => State::Replied,
            "committed" => State::Committed,
            "refused" => State::Refused,
            "voided" => State::Voided,
            "abandoned" => State::Abandoned { open },
            _ => return None,
        })
    }
}

impl Event {
    /// The event as the journal writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Event::Recorded => "recorded",
            Event::Sent => "sent",
            Event::Replied => "replied",
            Event::Refused { .. } => "refused",
            Event::Unknown => "unknown",
            Event::Voided => "voided",
            Event::Abandoned => "abandoned",
        }
    }

    /// Must it be on disk, come a loss of power, before anybody acts on it? What the server would say again need
    /// not: a reply is replayed, a void stays void, an unknown is found unknown.
    #[must_use]
    pub fn must_last(self) -> bool {
        match self {
            Event::Recorded | Event::Sent | Event::Refused { .. } | Event::Abandoned => true,
            Event::Replied | Event::Unknown | Event::Voided => false,
        }
    }
}

/// The state after `event`; `None` is an operation that is not in the journal.
///
/// # Errors
/// [`Impossible`]: the event cannot follow, and must not be written.
pub fn next(state: Option<State>, event: Event) -> Result<State, Impossible> {
    let Some(state) = state else {
        return if event == Event::Recorded { Ok(State::Ready) } else { Err(Impossible::Unrecorded) };
    };
    match event {
        Event::Recorded => Err(Impossible::Unrecorded),
        Event::Sent => sent(state),
        Event::Replied => committed(state, State::Replied),
        Event::Refused { known: Some(Known::Committed(_)), .. } => committed(state, State::Committed),
        Event::Refused { known: Some(Known::Voided), .. } | Event::Voided => voided(state),
        Event::Refused { known: Some(Known::NotCommittedSoFar | Known::Unknown) | None, again } => {
            refused(state, again)
        }
        Event::Unknown => Ok(unknown(state)),
        Event::Abandoned => abandoned(state),
    }
}

fn sent(state: State) -> Result<State, Impossible> {
    match state {
        State::Ready | State::Sent { .. } | State::Unknown { .. } => {
            Ok(State::Sent { open: NonZeroU32::MIN.saturating_add(state.open()) })
        }
        State::Replied | State::Committed | State::Refused | State::Voided | State::Abandoned { .. } => {
            Err(Impossible::Ended)
        }
    }
}

/// A fact, whoever it was told to. A reply says more than the bare word that it committed.
fn committed(state: State, fact: State) -> Result<State, Impossible> {
    match state {
        State::Replied => Ok(State::Replied),
        State::Voided => Err(Impossible::Contradiction),
        State::Ready
        | State::Sent { .. }
        | State::Unknown { .. }
        | State::Committed
        | State::Refused
        | State::Abandoned { .. } => Ok(fact),
    }
}

fn voided(state: State) -> Result<State, Impossible> {
    match state {
        State::Replied | State::Committed => Err(Impossible::Contradiction),
        State::Ready
        | State::Sent { .. }
        | State::Unknown { .. }
        | State::Refused
        | State::Voided
        | State::Abandoned { .. } => Ok(State::Voided),
    }
}

/// One try less is open. The last one's refusal ends the operation, unless it is to be sent again.
fn refused(state: State, again: bool) -> Result<State, Impossible> {
    match state {
        State::Sent { open } => Ok(match (NonZeroU32::new(open.get() - 1), again) {
            (Some(open), true) => State::Sent { open },
            (Some(open), false) => State::Unknown { open: open.get() },
            (None, true) => State::Ready,
            (None, false) => State::Refused,
        }),
        State::Unknown { open } => Ok(match (open.checked_sub(1).ok_or(Impossible::Unasked)?, again) {
            (0, false) => State::Refused,
            (open, _) => State::Unknown { open },
        }),
        State::Abandoned { open } => {
            Ok(State::Abandoned { open: open.checked_sub(1).ok_or(Impossible::Unasked)? })
        }
        // Another process has heard the fact already.
        State::Replied | State::Committed | State::Voided => Ok(state),
        State::Ready | State::Refused => Err(Impossible::Unasked),
    }
}

fn unknown(state: State) -> State {
    match state {
        State::Ready | State::Sent { .. } | State::Unknown { .. } => State::Unknown { open: state.open() },
        State::Replied | State::Committed | State::Refused | State::Voided | State::Abandoned { .. } => state,
    }
}

fn abandoned(state: State) -> Result<State, Impossible> {
    match state {
        State::Ready | State::Sent { .. } | State::Unknown { .. } | State::Abandoned { .. } => {
            Ok(State::Abandoned { open: state.open() })
        }
        State::Replied | State::Committed | State::Refused | State::Voided => Err(Impossible::Ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_core::Timestamp;

    const fn s(open: u32) -> State {
        State::Sent { open: NonZeroU32::new(open).unwrap() }
    }
    const fn u(open: u32) -> State {
        State::Unknown { open }
    }
    const fn a(open: u32) -> State {
        State::Abandoned { open }
    }
    const AT: Timestamp = Timestamp::from_micros(0);
    const AGAIN: Event = Event::Refused { known: Some(Known::Unknown), again: true };
    const STOP: Event = Event::Refused { known: Some(Known::NotCommittedSoFar), again: false };

    /// Every state with every event: a row a state, a column an event. A number is how many tries are open; what
    /// cannot follow is `never` (recorded twice, or not at all), `ended`, `unasked` or `contrary`.
    const TABLE: &str = "
        .          | recorded sent  replied   committed voided    again     stop      unknown   void      abandon
        none       | ready    never never     never     never     never     never     never     never     never
        ready      | never    sent1 replied   committed voided    unasked   unasked   unknown0  voided    abandoned0
        sent1      | never    sent2 replied   committed voided    ready     refused   unknown1  voided    abandoned1
        sent2      | never    sent3 replied   committed voided    sent1     unknown1  unknown2  voided    abandoned2
        unknown0   | never    sent1 replied   committed voided    unasked   unasked   unknown0  voided    abandoned0
        unknown1   | never    sent2 replied   committed voided    unknown0  refused   unknown1  voided    abandoned1
        unknown2   | never    sent3 replied   committed voided    unknown1  unknown1  unknown2  voided    abandoned2
        replied    | never    ended replied   replied   contrary  replied   replied   replied   contrary  ended
        committed  | never    ended replied   committed contrary  committed committed committed contrary  ended
        refused    | never    ended replied   committed voided    unasked   unasked   refused   voided    ended
        voided     | never    ended contrary  contrary  voided    voided    voided    voided    voided    ended
        abandoned0 | never    ended replied   committed voided    unasked   unasked   abandoned0 voided   abandoned0
        abandoned2 | never    ended replied   committed voided    abandoned1 abandoned1 abandoned2 voided abandoned2
    ";

    fn event(column: &str) -> Event {
        match column {
            "recorded" => Event::Recorded,
            "sent" => Event::Sent,
            "replied" => Event::Replied,
            "committed" => Event::Refused { known: Some(Known::Committed(AT)), again: false },
            "voided" => Event::Refused { known: Some(Known::Voided), again: false },
            "again" => AGAIN,
            "stop" => STOP,
            "unknown" => Event::Unknown,
            "void" => Event::Voided,
            "abandon" => Event::Abandoned,
            other => panic!("no such event: {other}"),
        }
    }

    fn state(cell: &str) -> Result<State, Impossible> {
        let (word, open) = cell.split_at(cell.find(|c: char| c.is_ascii_digit()).unwrap_or(cell.len()));
        match word {
            "never" => Err(Impossible::Unrecorded),
            "ended" => Err(Impossible::Ended),
            "unasked" => Err(Impossible::Unasked),
            "contrary" => Err(Impossible::Contradiction),
            word => Ok(State::parse(word, open.parse().unwrap_or(0)).unwrap()),
        }
    }

    #[test]
    fn every_state_with_every_event() {
        let mut rows = TABLE.lines().filter_map(|line| line.split_once('|'));
        let columns: Vec<Event> = rows.next().unwrap().1.split_whitespace().map(event).collect();
        let mut pairs = 0;
        for (name, cells) in rows {
            let before = (name.trim() != "none").then(|| state(name.trim()).unwrap());
            let cells: Vec<&str> = cells.split_whitespace().collect();
            assert_eq!(cells.len(), columns.len(), "{name}");
            for (event, cell) in columns.iter().zip(cells) {
                assert_eq!(next(before, *event), state(cell), "{name} + {event:?}");
                pairs += 1;
            }
        }
        assert_eq!(pairs, 130);
    }

    /// K7, by exhaustion: whatever comes after a lost try, nothing but a fact or giving up ends the operation.
    #[test]
    fn while_a_try_is_open_no_refusal_ends_the_operation() {
        let mut reached = vec![next(next(Some(State::Ready), Event::Sent).ok(), Event::Unknown).unwrap()];
        for _ in 0..5 {
            let steps = reached.iter().flat_map(|state| {
                let after = next(Some(*state), Event::Sent).unwrap();
                [AGAIN, STOP, Event::Unknown].map(|event| next(Some(after), event).unwrap())
            });
            reached = steps.collect();
            assert!(reached.iter().all(|state| !state.ended() && state.open() > 0), "{reached:?}");
        }
    }

    #[test]
    fn states_are_read_as_they_are_written() {
        let states = [State::Ready, s(1), s(7), u(0), u(3), State::Replied, State::Committed, State::Refused];
        for state in states.into_iter().chain([State::Voided, a(0), a(2)]) {
            assert_eq!(State::parse(state.as_str(), state.open()), Some(state));
        }
        assert_eq!(State::parse("sent", 0), None);
        assert_eq!(State::parse("later", 1), None);
    }
}
