//! Questions of a policy to programs outside, and their answers.
//!
//! The kernel sends a [`Question`] as one packet of JSON to the process that asks, and gets an [`Answer`], in any order. An
//! answer to a question that is not open any more means nothing.

use serde::{Deserialize, Serialize};

/// Longest packet of either direction.
pub const MAX_PACKET: usize = 256 << 10;

/// What the kernel asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question<E> {
    /// Which question.
    pub id: u64,
    /// The rule that asks, from 1 on as in the log; nothing for the default.
    pub rule: Option<u32>,
    /// The decision as the log would have it, with the action `ask`.
    pub entry: E,
}

/// What came of it: an action, or an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// That of the question.
    pub id: u64,
    /// The name of an action; never `ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The error number of `deny`, by name; EACCES without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// Why there is no answer: the rule's default holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
