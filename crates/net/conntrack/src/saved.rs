//! The connections of a namespace as plain data, for a checkpoint. Moments are those of the kernel's clock, which goes on.

use crate::entry::{Entry, Status};
use crate::state::{ConnectionsState, EntryState};
use crate::table::{MAX_ENTRIES, Table};
use crate::timeouts::Timeout;
use crate::tuple::Tuple;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Entry {
    fn state(&self) -> EntryState {
        EntryState {
            id: self.id,
            tuples: [self.original, self.reply()],
            mark: self.mark(),
            status: self.status(),
            deadline: self.deadline(),
            stream_from: self.stream_from,
            tcp: self.tcp_state(),
        }
    }
}

impl Table {
    /// As plain data.
    pub fn saved(&self, now: u64) -> ConnectionsState {
        ConnectionsState {
            entries: self.entries(now).iter().map(|entry| entry.state()).collect(),
            max: self.max(),
            next: self.next_id(),
            timeouts: Timeout::ALL.iter().map(|(of, ..)| self.timeouts.get(*of)).collect(),
            counters: [&self.dropped, &self.early_dropped].map(|n| n.load(Ordering::Relaxed)),
        }
    }

    /// Fills an empty table. `None` for connections that cannot be: two with one tuple, families that do not fit, or too many.
    pub fn restore(&self, saved: &ConnectionsState) -> Option<()> {
        if saved.entries.len() > MAX_ENTRIES as usize || !self.set_max(saved.max) {
            return None;
        }
        for one in &saved.entries {
            let fits = |tuple: &Tuple| tuple.src.is_ipv4() == tuple.dst.is_ipv4();
            let [original, reply] = one.tuples;
            let alike = original.src.is_ipv4() == reply.src.is_ipv4() && original.protocol == reply.protocol;
            // What a socket sends to itself has one tuple both ways.
            if !fits(&original) || !fits(&reply) || !alike {
                return None;
            }
            let entry = Arc::new(self.restored_entry(one)?);
            entry.set(Status(one.status & !Status::DYING.0));
            self.confirm(&entry).ok()?;
        }
        for ((of, ..), seconds) in Timeout::ALL.iter().zip(&saved.timeouts) {
            self.timeouts.set(*of, *seconds);
        }
        self.set_next_id(saved.next);
        let [dropped, early] = saved.counters;
        self.dropped.store(dropped, Ordering::Relaxed);
        self.early_dropped.store(early, Ordering::Relaxed);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transport;
    use crate::tcp::Kind;

    fn made() -> Table {
        let table = Table::new([1; 16], Arc::default());
        let [src, dst] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let tuple = Tuple { src, dst, protocol: 6, src_port: 1000, dst_port: 80 };
        for seen in [Kind::Syn, Kind::Ack] {
            table.packet(&tuple, Transport::Tcp(seen), 5);
        }
        let entry = table.create(tuple, tuple.inverse().unwrap(), 5).unwrap();
        entry.refresh(5, 100);
        entry.mark.store(7, Ordering::Relaxed);
        entry.set(Status::SRC_NAT);
        entry.set_reply(Tuple { dst_port: 4000, ..entry.reply() });
        table.confirm(&entry).unwrap();
        table.timeouts.set(Timeout::Udp, 9);
        assert!(table.set_max(50));
        table
    }

    #[test]
    fn state_and_back() {
        let saved = made().saved(6);
        let again = Table::new([2; 16], Arc::default());
        again.restore(&saved).unwrap();
        assert_eq!(again.saved(6), saved);
        let (entry, _) = again.lookup(&saved.entries[0].tuples[1], 6).unwrap();
        assert!(entry.has(Status::SRC_NAT) && entry.mark() == 7 && entry.seconds_left(5) == 100);
        assert_eq!(again.count(1_000_000), 0);
    }

    #[test]
    fn datagrams_of_a_socket_to_itself() {
        let table = Table::new([1; 16], Arc::default());
        let here = "10.0.0.1".parse().unwrap();
        let tuple = Tuple { src: here, dst: here, protocol: 17, src_port: 9, dst_port: 9 };
        let entry = table.create(tuple, tuple.inverse().unwrap(), 5).unwrap();
        entry.refresh(5, 100);
        table.confirm(&entry).unwrap();
        let again = Table::new([2; 16], Arc::default());
        again.restore(&table.saved(6)).unwrap();
        assert!(again.lookup(&tuple, 6).is_some());
    }

    #[test]
    fn plain_data_that_cannot_be() {
        let saved = made().saved(6);
        let refused = |change: &dyn Fn(&mut ConnectionsState)| {
            let mut bad = saved.clone();
            change(&mut bad);
            assert_eq!(Table::new([2; 16], Arc::default()).restore(&bad), None, "{bad:?}");
        };
        refused(&|s| s.max = MAX_ENTRIES + 1);
        refused(&|s| s.entries.push(s.entries[0].clone()));
        refused(&|s| s.entries[0].tuples[0].src = "::1".parse().unwrap());
        refused(&|s| s.entries[0].tuples[1].protocol = 17);
    }
}
