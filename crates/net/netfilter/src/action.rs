//! What rules do besides deciding: answers and log lines, carried out when no lock is held.

use conntrack::Flow;
use ktime::Ktime;
use netstack::frame::Tags;
use netstack::hooks::Answers;
use std::net::IpAddr;

/// Actions that wait at once; more are dropped.
pub(crate) const MAX_WAITING: usize = 1024;

/// Something to do after the packet.
#[derive(Debug)]
pub enum Action {
    /// An ICMP or ICMPv6 error about a packet goes to its sender.
    Icmp {
        /// Type and code.
        kind: (u8, u8),
        /// The packet from its IP header on.
        packet: Vec<u8>,
        /// The interface that received it, 0 for a packet of this host.
        input: u32,
        /// The packet's connection, which is not in the table before the packet has passed all rules.
        flow: Flow,
    },
    /// A segment goes out.
    Segment {
        /// Source.
        src: IpAddr,
        /// Destination.
        dst: IpAddr,
        /// TCP header without options; its checksum is filled in.
        header: [u8; 20],
        /// The mark and the connection of the segment.
        tags: Tags,
    },
    /// A line for the kernel's log.
    Log {
        /// syslog(2) level.
        level: u8,
        /// The text without a newline.
        text: String,
    },
}

/// Where log lines go.
pub trait Log: Send + Sync {
    /// Takes a line.
    fn line(&self, level: u8, text: &str);
}

/// Carries an action out.
pub(crate) fn run(action: Action, answers: &dyn Answers, now: Ktime, log: Option<&dyn Log>) {
    match action {
        Action::Icmp { kind, packet, input, flow } => {
            answers.send_error_about(now, &packet, (input, &flow), kind)
        }
        Action::Segment { src, dst, header, tags } => answers.send_segment(now, (src, dst), header, tags),
        Action::Log { level, text } => {
            if let Some(log) = log {
                log.line(level, &text);
            }
        }
    }
}
