//! The states of a TCP connection as seen by an observer on the path.
//!
//! Sequence numbers are not compared with windows: the tracker behaves as Linux's with nf_conntrack_tcp_be_liberal set.

use crate::timeouts::Timeout;
use crate::tuple::Direction;

/// The state (`enum tcp_conntrack`), in Linux's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum State {
    /// Nothing seen.
    #[default]
    None,
    /// A SYN.
    SynSent,
    /// An answered SYN.
    SynRecv,
    /// The handshake is over.
    Established,
    /// One side has sent its FIN.
    FinWait,
    /// It was acknowledged.
    CloseWait,
    /// The other has sent its FIN, too.
    LastAck,
    /// That was acknowledged.
    TimeWait,
    /// A reset.
    Close,
    /// Two SYNs met.
    SynSent2,
}

impl State {
    /// The name in /proc/net/nf_conntrack.
    pub fn name(self) -> &'static str {
        match self {
            State::None => "NONE",
            State::SynSent => "SYN_SENT",
            State::SynRecv => "SYN_RECV",
            State::Established => "ESTABLISHED",
            State::FinWait => "FIN_WAIT",
            State::CloseWait => "CLOSE_WAIT",
            State::LastAck => "LAST_ACK",
            State::TimeWait => "TIME_WAIT",
            State::Close => "CLOSE",
            State::SynSent2 => "SYN_SENT2",
        }
    }

    /// How long a connection stays in the state.
    pub fn timeout(self) -> Timeout {
        match self {
            State::None | State::SynSent | State::SynSent2 => Timeout::SynSent,
            State::SynRecv => Timeout::SynRecv,
            State::Established => Timeout::Established,
            State::FinWait => Timeout::FinWait,
            State::CloseWait => Timeout::CloseWait,
            State::LastAck => Timeout::LastAck,
            State::TimeWait => Timeout::TimeWait,
            State::Close => Timeout::Close,
        }
    }
}

/// A segment by its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SYN alone.
    Syn,
    /// SYN and ACK.
    SynAck,
    /// FIN.
    Fin,
    /// ACK.
    Ack,
    /// RST.
    Rst,
    /// None of these.
    Other,
}

impl Kind {
    /// The kind of a segment with these flags (byte 13 of the header); `None` for combinations that do not occur.
    pub fn of(flags: u8) -> Option<Kind> {
        const FIN: u8 = 1;
        const SYN: u8 = 2;
        const RST: u8 = 4;
        const PSH: u8 = 8;
        const ACK: u8 = 16;
        const URG: u8 = 32;
        // Congestion bits say nothing here, and PSH goes with everything.
        Some(match flags & 0x3f & !PSH {
            SYN => Kind::Syn,
            f if f == SYN | URG => Kind::Syn,
            f if f == SYN | ACK => Kind::SynAck,
            RST => Kind::Rst,
            f if f == RST | ACK => Kind::Rst,
            f if f & !URG == FIN | ACK => Kind::Fin,
            f if f & !URG == ACK => Kind::Ack,
            _ => return None,
        })
    }
}

/// What a segment does to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The new state.
    To(State),
    /// The segment passes and changes nothing.
    Ignore,
    /// The segment does not belong to the connection.
    Invalid,
}

/// What is kept of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracker {
    /// The state.
    pub state: State,
}

/// The state after a segment.
pub(crate) fn step(state: State, direction: Direction, kind: Kind) -> Step {
    use State as S;
    let original = direction == Direction::Original;
    match (kind, state) {
        (Kind::Rst, S::None) => Step::Invalid,
        (Kind::Rst, _) => Step::To(S::Close),
        (Kind::Other, _) => Step::Invalid,
        (Kind::Syn, S::None | S::SynSent) if original => Step::To(S::SynSent),
        (Kind::Syn, S::SynSent | S::SynSent2) => Step::To(S::SynSent2),
        (Kind::Syn, S::TimeWait) => Step::To(S::SynSent),
        (Kind::Syn, S::Close) if original => Step::To(S::SynSent),
        (Kind::Syn, _) if original => Step::Ignore,
        (Kind::Syn, _) => Step::Invalid,
        (Kind::SynAck, S::SynRecv | S::SynSent2) if original => Step::To(S::SynRecv),
        (Kind::SynAck, _) if original => Step::Invalid,
        (Kind::SynAck, S::None) => Step::Invalid,
        (Kind::SynAck, S::SynSent | S::SynSent2) => Step::To(S::SynRecv),
        (Kind::SynAck, _) => Step::Ignore,
        (Kind::Ack, S::None) if original => Step::To(S::Established),
        (Kind::Ack, S::SynSent | S::SynSent2) if !original => Step::Ignore,
        (Kind::Ack, S::SynRecv) if original => Step::To(S::Established),
        (Kind::Fin | Kind::Ack, S::None | S::SynSent | S::SynSent2) => Step::Invalid,
        (Kind::Ack, S::FinWait) => Step::To(S::CloseWait),
        (Kind::Ack, S::LastAck) => Step::To(S::TimeWait),
        (Kind::Ack, same) => Step::To(same),
        (Kind::Fin, S::SynRecv | S::Established) => Step::To(S::FinWait),
        (Kind::Fin, S::FinWait | S::CloseWait | S::LastAck) => Step::To(S::LastAck),
        (Kind::Fin, same) => Step::To(same),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state after segments that go forth (`>`) and back (`<`).
    fn after(script: &str) -> State {
        script.split(' ').fold(State::None, |state, word| {
            let (side, kind) = word.split_at(1);
            let direction = if side == ">" { Direction::Original } else { Direction::Reply };
            let kind = match kind {
                "S" => Kind::Syn,
                "SA" => Kind::SynAck,
                "F" => Kind::Fin,
                "A" => Kind::Ack,
                _ => Kind::Rst,
            };
            match step(state, direction, kind) {
                Step::To(new) => new,
                _ => state,
            }
        })
    }

    #[test]
    fn lives_of_connections() {
        assert_eq!(after(">S"), State::SynSent);
        assert_eq!(after(">S <SA"), State::SynRecv);
        assert_eq!(after(">S <SA >A <A >A"), State::Established);
        assert_eq!(after(">S <SA >A >F"), State::FinWait);
        assert_eq!(after(">S <SA >A >F <A"), State::CloseWait);
        assert_eq!(after(">S <SA >A >F <A <F"), State::LastAck);
        assert_eq!(after(">S <SA >A >F <A <F >A"), State::TimeWait);
        assert_eq!(after(">S <SA >A <R"), State::Close);
        assert_eq!(after(">S <S"), State::SynSent2);
        assert_eq!(after(">S <S >SA"), State::SynRecv);
        assert_eq!(after(">A"), State::Established, "a connection in progress is taken up");
        assert_eq!(step(State::Established, Direction::Reply, Kind::Syn), Step::Invalid);
    }

    #[test]
    fn impossible_flags() {
        assert!([0, 1, 3, 6, 7, 63, 41].into_iter().all(|flags| Kind::of(flags).is_none()));
        assert_eq!(Kind::of(0xc2), Some(Kind::Syn));
        assert_eq!(Kind::of(0x19), Some(Kind::Fin));
    }
}
