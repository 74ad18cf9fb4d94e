//! The effect of a packet on its connection.

use crate::entry::{Entry, Flow, State, Status};
use crate::table::Table;
use crate::tcp::{self, Kind, Step};
use crate::timeouts::Timeout;
use crate::tuple::{Direction, Tuple, is_query};
use std::sync::Arc;

/// What matters of a packet's transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, by its flags.
    Tcp(Kind),
    /// UDP and UDP-Lite.
    Udp,
    /// An ICMP query or an answer to one.
    Icmp,
    /// Another protocol.
    Other,
}

/// What a packet is to the table.
#[derive(Debug)]
pub enum Outcome {
    /// A connection's packet, or one that no connection can be made for.
    Flow(Flow),
    /// The table is full.
    Full,
}

impl Table {
    /// Finds a packet's connection, or makes a new one that is not in the table yet, and takes the packet into account.
    pub fn packet(&self, tuple: &Tuple, seen: Transport, now: u64) -> Outcome {
        // The second time is for a connection that ended and is opened anew.
        for _ in 0..2 {
            let (entry, direction) = match self.lookup(tuple, now) {
                Some(found) => found,
                None => match self.start(tuple, seen, now) {
                    Ok(Some(entry)) => (entry, Direction::Original),
                    Ok(None) => return Outcome::Flow(Flow::None),
                    Err(()) => return Outcome::Full,
                },
            };
            match self.advance(&entry, direction, seen, now) {
                Advance::Passed => return Outcome::Flow(flow(entry, direction)),
                Advance::Invalid => return Outcome::Flow(Flow::None),
                Advance::Ended => {
                    self.kill(&entry);
                    return Outcome::Flow(Flow::Tracked { entry, direction, state: State::Established });
                }
                Advance::Anew => self.kill(&entry),
            }
        }
        Outcome::Flow(Flow::None)
    }

    fn start(&self, tuple: &Tuple, seen: Transport, now: u64) -> Result<Option<Arc<Entry>>, ()> {
        if tuple.is_icmp() && !is_query(tuple.protocol, tuple.icmp_type()) {
            return Ok(None);
        }
        if let Transport::Tcp(kind) = seen
            && !matches!(tcp::step(tcp::State::None, Direction::Original, kind), Step::To(_))
        {
            return Ok(None);
        }
        let Some(reply) = tuple.inverse() else { return Ok(None) };
        self.create(*tuple, reply, now).map(Some).ok_or(())
    }

    fn advance(&self, entry: &Entry, direction: Direction, seen: Transport, now: u64) -> Advance {
        let replied = entry.has(Status::SEEN_REPLY);
        let timeout = match seen {
            Transport::Tcp(kind) => match self.tcp(entry, direction, kind) {
                Ok(timeout) => timeout,
                Err(other) => return other,
            },
            Transport::Udp if replied && now > entry.stream_from => {
                entry.set(Status::ASSURED);
                Timeout::UdpStream
            }
            Transport::Udp => Timeout::Udp,
            Transport::Icmp if entry.original.src.is_ipv4() => Timeout::Icmp,
            Transport::Icmp => Timeout::Icmpv6,
            Transport::Other => Timeout::Generic,
        };
        entry.refresh(now, self.timeouts.get(timeout));
        if direction == Direction::Reply {
            entry.set(Status::SEEN_REPLY);
        }
        Advance::Passed
    }

    fn tcp(&self, entry: &Entry, direction: Direction, kind: Kind) -> Result<Timeout, Advance> {
        let replied = entry.has(Status::SEEN_REPLY);
        let mut tracker = entry.tcp.lock();
        let old = tracker.state;
        let new = match tcp::step(old, direction, kind) {
            Step::To(new) => new,
            Step::Ignore => return Ok(old.timeout()),
            Step::Invalid => return Err(Advance::Invalid),
        };
        let over = matches!(old, tcp::State::TimeWait | tcp::State::Close);
        if new == tcp::State::SynSent && over {
            return Err(Advance::Anew);
        }
        tracker.state = new;
        drop(tracker);
        if kind == Kind::Rst && !replied && direction == Direction::Reply {
            // A refused connection leaves nothing behind.
            return Err(Advance::Ended);
        }
        let was_up = matches!(old, tcp::State::SynRecv | tcp::State::Established);
        if new == tcp::State::Established && was_up && replied {
            entry.set(Status::ASSURED);
        }
        Ok(new.timeout())
    }
}

enum Advance {
    Passed,
    Invalid,
    /// The packet ends the connection.
    Ended,
    /// The packet begins another connection of the same addresses.
    Anew,
}

fn flow(entry: Arc<Entry>, direction: Direction) -> Flow {
    let answered = direction == Direction::Reply || entry.has(Status::SEEN_REPLY);
    let state = match answered {
        true => State::Established,
        false if entry.has(Status::EXPECTED) => State::Related,
        false => State::New,
    };
    Flow::Tracked { entry, direction, state }
}
