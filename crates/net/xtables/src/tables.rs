//! The tables of a network namespace, as iptables-legacy reads and replaces them.
//!
//! A table exists from the first request for it on, as with Linux's modules. Its chains are at their points while it
//! has rules or a policy that drops.
//!
//! Lock ranks: `XT_TABLES`, and `XT_RULES` while packets pass the rules of a table. A checkpoint keeps the blocks that programs passed, with counters.

use crate::layout::{ERROR, INFO, NAME, PART, Replace, STANDARD, layout};
use crate::ruleset::{POINTS, Ruleset};
use abi::Errno;
use lock_order::{Mutex, RwLock, rank};
use netfilter::{Chain, Family, Netfilter, Packet, Point, Registration, Verdict, priority};
use std::fmt;
use std::sync::Arc;

/// Bytes of the entries of all tables of a namespace.
const MAX_BYTES: usize = 16 << 20;

/// A table that there may be.
struct Kind {
    name: &'static str,
    /// A bit for each of its points.
    hooks: u32,
    /// The priority of its chains at each point.
    priority: fn(Point) -> i32,
}

static KINDS: [Kind; 5] = [
    Kind { name: "filter", hooks: 0x0e, priority: |_| priority::FILTER },
    Kind { name: "nat", hooks: 0x1b, priority: nat_priority },
    Kind { name: "mangle", hooks: 0x1f, priority: |_| priority::MANGLE },
    Kind { name: "raw", hooks: 0x09, priority: |_| priority::RAW },
    Kind { name: "security", hooks: 0x0e, priority: |_| priority::SECURITY },
];

fn nat_priority(point: Point) -> i32 {
    match point {
        Point::PreRouting | Point::Output => priority::NAT_DST,
        _ => priority::NAT_SRC,
    }
}

/// The rules of a table at its points; replaced in one step.
struct Running(RwLock<Arc<Ruleset>, { rank::XT_RULES }>);

impl Chain for Running {
    fn run(&self, packet: &mut Packet<'_>) -> Verdict {
        self.0.read().run(packet)
    }
}

/// A table as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[expect(missing_docs, reason = "the fields of `struct ipt_replace`")]
pub struct TableState {
    pub name: String,
    pub valid_hooks: u32,
    pub entries: usize,
    pub hook_entry: [u32; 5],
    pub underflow: [u32; 5],
    /// The entries.
    #[serde(with = "serde_bytes")]
    pub blob: Vec<u8>,
    /// Packets and bytes of each.
    pub counters: Vec<[u64; 2]>,
}

struct Table {
    kind: &'static Kind,
    running: Arc<Running>,
    registrations: Vec<Registration>,
}

/// The tables of a network namespace.
pub struct Tables {
    netfilter: Arc<Netfilter>,
    families: [Mutex<Vec<Table>, { rank::XT_TABLES }>; 2],
}

impl Tables {
    /// No tables.
    pub fn new(netfilter: &Arc<Netfilter>) -> Tables {
        Tables { netfilter: netfilter.clone(), families: Default::default() }
    }

    /// The tables that exist (/proc/net/ip_tables_names).
    pub fn names(&self, family: Family) -> Vec<&'static str> {
        self.families[family as usize].lock().iter().map(|table| table.kind.name).collect()
    }

    /// Runs `f` on a table, which is made if there is none; `ENOENT` for unknown names.
    fn with<R>(
        &self,
        family: Family,
        name: &str,
        f: impl FnOnce(&mut Table, usize) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let kind = KINDS.iter().find(|kind| kind.name == name).ok_or(Errno::ENOENT)?;
        let mut tables = self.families[family as usize].lock();
        if !tables.iter().any(|table| table.kind.name == name) {
            let (replace, blob) = initial(kind, family);
            let rules = Ruleset::parse(&self.netfilter, family, replace, blob)?;
            let running = Arc::new(Running(RwLock::new(Arc::new(rules))));
            tables.push(Table { kind, running, registrations: Vec::new() });
        }
        let others = tables.iter().filter(|table| table.kind.name != name);
        let bytes = others.map(|table| table.running.0.read().replace.size).sum();
        let table = tables.iter_mut().find(|table| table.kind.name == name).ok_or(Errno::ENOENT)?;
        f(table, bytes)
    }

    /// `IPT_SO_GET_INFO`: `struct ipt_getinfo`.
    pub fn info(&self, family: Family, name: &str) -> Result<Vec<u8>, Errno> {
        self.with(family, name, |table, _| {
            let rules = table.running.0.read().clone();
            let replace = &rules.replace;
            let mut out = vec![0; NAME];
            out[..name.len()].copy_from_slice(name.as_bytes());
            out.extend(replace.valid_hooks.to_ne_bytes());
            let offsets = replace.hook_entry.iter().chain(&replace.underflow);
            out.extend(offsets.flat_map(|offset| offset.to_ne_bytes()));
            out.extend((replace.entries as u32).to_ne_bytes());
            out.extend((replace.size as u32).to_ne_bytes());
            out.truncate(INFO);
            Ok(out)
        })
    }

    /// `IPT_SO_GET_ENTRIES`: the entries; `EAGAIN` when there are not `size` bytes of them (any more).
    pub fn entries(&self, family: Family, name: &str, size: usize) -> Result<Vec<u8>, Errno> {
        self.with(family, name, |table, _| {
            let rules = table.running.0.read().clone();
            if rules.replace.size == size { Ok(rules.entries()) } else { Err(Errno::EAGAIN) }
        })
    }

    /// `IPT_SO_SET_REPLACE`: new rules for a table. Returns the counters of the old ones.
    pub fn replace(&self, family: Family, replace: Replace, blob: Vec<u8>) -> Result<Vec<[u64; 2]>, Errno> {
        if replace.size > MAX_BYTES {
            return Err(Errno::ENOMEM);
        }
        if blob.len() != replace.size {
            return Err(Errno::EINVAL);
        }
        let (name, room) = (replace.name.clone(), replace.counters.0);
        let size = replace.size;
        let rules = Arc::new(Ruleset::parse(&self.netfilter, family, replace, blob)?);
        let netfilter = &self.netfilter;
        let (counters, old) = self.with(family, &name, |table, others| {
            if rules.replace.valid_hooks != table.kind.hooks {
                return Err(Errno::EINVAL);
            }
            if others + size > MAX_BYTES {
                return Err(Errno::ENOMEM);
            }
            if table.running.0.read().counters().len() != room {
                return Err(Errno::EAGAIN);
            }
            table.place(netfilter, family, !rules.is_trivial())?;
            let old = std::mem::replace(&mut *table.running.0.write(), rules);
            Ok((old.counters(), old))
        })?;
        // Rules may hold the last use of connection tracking; that ends with no lock held.
        drop(old);
        Ok(counters)
    }

    /// The tables that exist as plain data, for a checkpoint.
    pub fn saved(&self, family: Family) -> Vec<TableState> {
        let tables = self.families[family as usize].lock();
        let of = |table: &Table| {
            let rules = table.running.0.read().clone();
            let Replace { valid_hooks, entries, size: _, hook_entry, underflow, .. } = rules.replace.clone();
            let name = table.kind.name.to_owned();
            let blob = rules.entries();
            TableState { name, valid_hooks, entries, hook_entry, underflow, blob, counters: rules.counters() }
        };
        tables.iter().map(of).collect()
    }

    /// Makes a table of plain data. EINVAL, ENOMEM, ELOOP for rules that cannot be.
    pub fn restore(&self, family: Family, saved: &TableState) -> Result<(), Errno> {
        let there = self.with(family, &saved.name, |table, _| Ok(table.running.0.read().counters().len()))?;
        let replace = Replace {
            name: saved.name.clone(),
            valid_hooks: saved.valid_hooks,
            entries: saved.entries,
            size: saved.blob.len(),
            hook_entry: saved.hook_entry,
            underflow: saved.underflow,
            counters: (there, 0),
        };
        self.replace(family, replace, saved.blob.clone())?;
        self.add_counters(family, &saved.name, &saved.counters)
    }

    /// `IPT_SO_SET_ADD_COUNTERS`.
    pub fn add_counters(&self, family: Family, name: &str, more: &[[u64; 2]]) -> Result<(), Errno> {
        self.with(family, name, |table, _| table.running.0.read().add_counters(more))
    }
}

impl Table {
    /// Puts the chains at their points, or takes them away.
    fn place(&mut self, netfilter: &Netfilter, family: Family, wanted: bool) -> Result<(), Errno> {
        if wanted != self.registrations.is_empty() {
            return Ok(());
        }
        self.registrations.clear();
        if !wanted {
            return Ok(());
        }
        for (n, point) in POINTS.into_iter().enumerate() {
            if self.kind.hooks >> n & 1 == 0 {
                continue;
            }
            let (at, chain) = ((self.kind.priority)(point), self.running.clone());
            let registration = match self.kind.name {
                "nat" => netfilter.register_nat(family, point, at, chain),
                _ => netfilter.register(family, point, at, chain),
            };
            self.registrations.push(registration?);
        }
        Ok(())
    }
}

/// The entries of a new table: a policy for each point that accepts, and the end.
fn initial(kind: &Kind, family: Family) -> (Replace, Vec<u8>) {
    let layout = layout(family);
    let mut blob = Vec::new();
    let mut offsets = [0; 5];
    let mut count = 0;
    let mut add = |blob: &mut Vec<u8>, name: &str, size: usize, data: &[u8]| {
        let start = blob.len();
        let mut entry = vec![0; layout.entry + size];
        layout.set_offsets(&mut entry, layout.entry + size);
        let part = &mut entry[layout.entry..];
        part[..2].copy_from_slice(&(size as u16).to_ne_bytes());
        part[2..2 + name.len()].copy_from_slice(name.as_bytes());
        part[PART..PART + data.len()].copy_from_slice(data);
        blob.extend(entry);
        count += 1;
        start as u32
    };
    for (n, offset) in offsets.iter_mut().enumerate() {
        if kind.hooks >> n & 1 == 1 {
            const ACCEPT: i32 = -2;
            *offset = add(&mut blob, "", STANDARD, &ACCEPT.to_ne_bytes());
        }
    }
    add(&mut blob, "ERROR", ERROR, b"ERROR");
    let replace = Replace {
        name: kind.name.to_owned(),
        valid_hooks: kind.hooks,
        entries: count,
        size: blob.len(),
        hook_entry: offsets,
        underflow: offsets,
        counters: (1, 0),
    };
    (replace, blob)
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("v4", &self.names(Family::V4)).finish_non_exhaustive()
    }
}
