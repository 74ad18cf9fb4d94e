//! /sys/devices/system/cpu/cpuN/cache: the processor's caches as the processor itself describes them. Every processor
//! is a core of its own, as in the topology. All processors share the caches of the last level, and no others.

use crate::{every, me, number, online};
use abi::{Errno, Result};
use hostsys::cpu::{Cache, CacheKind, caches};
use kernfs::{At, Child, Entry, Names, dir, line, text};

/// Processor numbers are below this; `At::n` of a cache has the cache's index above.
const SHIFT: i64 = 1 << 16;

static CACHE: Entry = dir("index", &IN_CACHE);
static IN_CACHE: [Entry; 9] = [
    text("coherency_line_size", |at| line(of(at)?.line)),
    text("level", |at| line(of(at)?.level)),
    text("number_of_sets", |at| line(of(at)?.sets)),
    text("physical_line_partition", |at| line(of(at)?.partitions)),
    text("shared_cpu_list", |at| if is_last(at)? { online(at) } else { number(&processor(at)) }),
    text("shared_cpu_map", |at| if is_last(at)? { every(at) } else { me(&processor(at)) }),
    text("size", |at| line(format_args!("{}K", of(at)?.size() >> 10))),
    text("type", |at| {
        line(match of(at)?.kind {
            CacheKind::Data => "Data",
            CacheKind::Instruction => "Instruction",
            CacheKind::Unified => "Unified",
        })
    }),
    text("ways_of_associativity", |at| line(of(at)?.ways)),
];

fn of(at: &At) -> Result<&'static Cache> {
    usize::try_from(at.n / SHIFT).ok().and_then(|i| caches().get(i)).ok_or(Errno::ENOENT)
}

/// Whether a cache is of the last level, beyond those of a core.
fn is_last(at: &At) -> Result<bool> {
    Ok(of(at)?.level > 2)
}

/// The processor of this directory.
fn processor<'a>(at: &At<'a>) -> At<'a> {
    At {
        fs: at.fs,
        proc: at.proc,
        n: at.n % SHIFT,
        cx: at.cx,
        opener: at.opener,
        bound: at.bound,
        taken: at.taken.clone(),
    }
}

/// The caches of the processor with number `At::n`.
pub(crate) struct Caches;

fn one(at: &At, i: usize) -> Child {
    Child { entry: &CACHE, proc: None, n: i as i64 * SHIFT + at.n }
}

impl Names for Caches {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let found = self.list(at)?.into_iter().find(|(_, n, _)| n.as_bytes() == name);
        found.map(|(_, _, child)| child).ok_or(Errno::ENOENT)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        Ok((0..caches().len()).map(|i| (i as u64, format!("index{i}"), one(at, i))).collect())
    }
    fn subdirs(&self, _at: &At) -> u64 {
        caches().len() as u64
    }
}
