//! The send queue's pieces, and how a program writes. Plain data.

use crate::wire::seq::Seq;
use std::collections::VecDeque;

/// A piece of the send queue.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Piece {
    pub(super) end: Seq,
    /// PSH ends it.
    pub(super) push: bool,
    /// Nothing is added (`MSG_EOR`).
    pub(super) whole: bool,
}

/// How a program writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendFlags {
    /// More follows: a small segment waits (`MSG_MORE`).
    pub more: bool,
    /// What follows is not joined to it (`MSG_EOR`).
    pub whole: bool,
    /// The program is told when the memory is free (`MSG_ZEROCOPY`).
    pub zerocopy: bool,
}

/// How far sending goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// As far as the rules allow; with `MSG_MORE` a small segment waits.
    Usual { more: bool },
    /// One large segment.
    One,
    /// Small segments go, too.
    All,
}

/// Pieces with their bounds. Plain data.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Pieces {
    pub(super) list: VecDeque<Piece>,
    /// Where the last PSH was put.
    pub(super) pushed: Seq,
    /// TCP_NODELAY was set: what is queued goes, whatever holds it back.
    pub(crate) flush: bool,
}
