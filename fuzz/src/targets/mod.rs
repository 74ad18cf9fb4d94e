//! What is fuzzed.

mod changes;
mod config;
mod control;
mod ebpf;
mod elf;
mod erofs;
mod fileproto;
mod frames;
mod fuse;
mod gofer_client;
mod gofer_files;
mod image;
mod netfilter;
mod netlink;
mod network;
mod nftables;
mod pages;
mod policy;
mod seccomp;
mod slots;

use std::hash::{DefaultHasher, Hash, Hasher};

/// A target.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Runs an input. The number stands for what came of it: inputs with new numbers are kept.
    pub(crate) run: fn(&[u8]) -> u64,
    /// Words that mean something to the code.
    pub(crate) words: &'static [&'static str],
}

/// All of them.
pub(crate) const ALL: &[Target] = &[
    Target {
        name: "seccomp",
        what: "filters of guests, and the compiler of filters",
        run: seccomp::run,
        words: &[],
    },
    Target { name: "ebpf", what: "programs of guests that decide about devices", run: ebpf::run, words: &[] },
    Target {
        name: "elf",
        what: "programs that the kernel loads and the profiler reads",
        run: elf::run,
        words: &[],
    },
    Target { name: "erofs", what: "images of EROFS that guests mount", run: erofs::run, words: erofs::WORDS },
    Target {
        name: "changes",
        what: "changes of an overlay as a sentry tells them",
        run: changes::run,
        words: changes::WORDS,
    },
    Target { name: "image", what: "images of checkpoints", run: image::run, words: image::WORDS },
    Target { name: "pages", what: "compressed pages of images", run: pages::run, words: pages::WORDS },
    Target { name: "config", what: "config.json of bundles", run: config::run, words: config::WORDS },
    Target {
        name: "slots",
        what: "memory that stubs share with the sentry, call sites of guests",
        run: slots::run,
        words: &[],
    },
    Target {
        name: "control",
        what: "messages on the control socket",
        run: control::run,
        words: control::WORDS,
    },
    Target {
        name: "netlink",
        what: "requests of guests: rtnetlink, sock_diag, generic netlink",
        run: netlink::run,
        words: netlink::WORDS,
    },
    Target {
        name: "fuse",
        what: "answers of the daemons of FUSE file systems",
        run: fuse::run,
        words: fuse::WORDS,
    },
    Target {
        name: "network",
        what: "requests to the network gofer, names, policies",
        run: network::run,
        words: network::WORDS,
    },
    Target {
        name: "fileproto",
        what: "messages between a sentry and a gofer about files",
        run: fileproto::run,
        words: fileproto::WORDS,
    },
    Target {
        name: "gofer_files",
        what: "what a sentry asks of a gofer about files",
        run: gofer_files::run,
        words: gofer_files::WORDS,
    },
    Target {
        name: "gofer_client",
        what: "what a gofer answers a sentry about files",
        run: gofer_client::run,
        words: gofer_client::WORDS,
    },
    Target {
        name: "frames",
        what: "frames that an interface delivers to a stack with connections",
        run: frames::run,
        words: frames::WORDS,
    },
    Target {
        name: "netfilter",
        what: "tables of iptables, and packets that meet them",
        run: netfilter::run,
        words: netfilter::WORDS,
    },
    Target {
        name: "nftables",
        what: "batches of nf_tables, and packets that meet their rules",
        run: nftables::run,
        words: nftables::WORDS,
    },
    Target {
        name: "policy",
        what: "files of policies, operations that they decide, logs of decisions",
        run: policy::run,
        words: policy::WORDS,
    },
];

/// The target of that name.
pub(crate) fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name)
}

/// A number for an outcome.
fn outcome(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// An error's text without what is the input's: numbers and quoted words.
fn kind(error: &str) -> String {
    let mut quoted = false;
    let outside = error.chars().filter(|c| {
        quoted ^= *c == '"';
        !quoted && !c.is_ascii_digit()
    });
    outside.take(60).collect()
}

/// Takes numbers off the beginning of an input; 0 when there is nothing left.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}
