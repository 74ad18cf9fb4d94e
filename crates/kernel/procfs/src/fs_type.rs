//! The parts of a file system of tables that procfs does differently.

use crate::{conf, mounts, pid, sysctl, top};
use abi::{Errno, Result};
use caller::UserMemory;
use kernfs::{At, Changes, Entry, FsType, Node};
use mm::Mm;
use std::sync::Weak;
use vfs::Caller;

/// Files of a process that are not made by seq_file(5)'s means on Linux: they have a size of 0 to seek by.
const SIZED: [&str; 8] =
    ["environ", "cmdline", "auxv", "oom_score_adj", "oom_adj", "sessionid", "loginuid", "coredump_filter"];

pub(crate) struct Proc;

/// Files of /proc itself that say the same at any time, where those of Linux count or list something.
const CONSTANT: [&str; 9] =
    ["buddyinfo", "consoles", "diskstats", "iomem", "ioports", "kallsyms", "modules", "softirqs", "zoneinfo"];

impl FsType for Proc {
    fn name(&self) -> &'static str {
        "proc"
    }
    fn magic(&self) -> i64 {
        0x9fa0
    }
    fn root(&self) -> &'static Entry {
        &top::ROOT
    }
    fn no_create(&self) -> Errno {
        Errno::ENOENT
    }
    fn has_size(&self, node: &Node) -> bool {
        let name = node.entry().name;
        name == "f" || conf::is_setting(node.entry()) || node.is_of_process() && SIZED.contains(&name)
    }
    fn takes_empty_writes(&self, node: &Node) -> bool {
        node.is_of_process()
    }
    fn is_process_dir(&self, entry: &'static Entry) -> bool {
        std::ptr::eq(entry, &pid::PID_DIR)
    }
    fn magic_mode(&self, at: &At) -> u32 {
        pid::fd::link_mode(at)
    }
    fn check_open(&self, at: &At, entry: &Entry, cx: &dyn Caller) -> Result<Option<Weak<Mm>>> {
        pid::check_open(at, entry, cx)
    }
    fn judges_writers(&self, node: &Node) -> bool {
        (node.entry().name == "f" || conf::is_setting(node.entry())) && sysctl::judges_writers(&node.at(None))
    }
    fn may_write(&self, at: &At, cx: &dyn Caller) -> bool {
        sysctl::may_write(at, cx)
    }
    fn ioctl(
        &self,
        at: &At,
        entry: &'static Entry,
        mem: &mut dyn UserMemory,
        (cmd, arg): (u32, u64),
    ) -> Result<u64> {
        let is_maps = at.proc.is_some() && entry.name == "maps";
        if is_maps && cmd == pid::map_query::PROCMAP_QUERY {
            pid::map_query::query(at, mem, arg)
        } else {
            Err(Errno::ENOTTY)
        }
    }
    fn is_constant(&self, node: &Node) -> bool {
        !node.is_of_process() && CONSTANT.contains(&node.entry().name)
    }
    fn write_error(&self, node: &Node) -> Option<Errno> {
        let setting = node.entry().name == "f" || conf::is_setting(node.entry());
        // Linux has no write operation for the files of a process, and one that fails for others.
        let error = if node.is_of_process() { Errno::EINVAL } else { Errno::EIO };
        (!setting).then_some(error)
    }
    fn watch(&self, node: &Node, cx: &dyn Caller) -> Option<Box<dyn Changes>> {
        match node.entry().name {
            "f" => sysctl::watch(&node.at(Some(cx))),
            "generation" => crate::notices::watch(node),
            _ => mounts::watch(node),
        }
    }
}
