//! What `trace procfs` shows: every process as JSON, for a consumer that begins to watch a sandbox that runs.

use container::Container;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use task::trace_points::text;
use task::{Kernel, Node, Task, ThreadGroup};

/// Most mappings and descriptors that are told of one process.
const MOST: usize = 1 << 16;

/// Resources by RLIMIT_*, as getrlimit(2) names them.
const LIMITS: [&str; 16] = [
    "RLIMIT_CPU",
    "RLIMIT_FSIZE",
    "RLIMIT_DATA",
    "RLIMIT_STACK",
    "RLIMIT_CORE",
    "RLIMIT_RSS",
    "RLIMIT_NPROC",
    "RLIMIT_NOFILE",
    "RLIMIT_MEMLOCK",
    "RLIMIT_AS",
    "RLIMIT_LOCKS",
    "RLIMIT_SIGPENDING",
    "RLIMIT_MSGQUEUE",
    "RLIMIT_NICE",
    "RLIMIT_RTPRIO",
    "RLIMIT_RTTIME",
];

/// The processes of a container, or of all where none is named; those that have ended are left out.
pub(crate) fn processes(kernel: &Kernel, only: Option<&Container>) -> Value {
    let groups: Vec<(Arc<ThreadGroup>, i32, i32)> = {
        let tree = kernel.tree.lock();
        let wanted = |node: &&Node| only.is_none_or(|only| node.group.container.index() == only.index());
        tree.nodes().filter(wanted).map(|node| (node.group.clone(), node.pgid(), node.sid())).collect()
    };
    let all = groups.iter().filter_map(|(group, pgid, sid)| {
        let task = group.any_thread()?;
        Some(process(group, &task, json!({ "pgid": pgid, "sid": sid })))
    });
    Value::Array(all.collect())
}

fn process(group: &ThreadGroup, task: &Task, stat: Value) -> Value {
    let mm = task.mm();
    let image = mm.image();
    let strings = |range| -> Vec<String> {
        let bytes = procfs::strings(&mm, range);
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        if bytes.is_empty() { Vec::new() } else { bytes.split(|&b| b == 0).map(text).collect() }
    };
    let fs = task.fs().map(|fs| fs.view());
    let path = |path: &vfs::Path| text(&group.container_path(path));
    let comm = task.comm();
    json!({
        "exe": image.exe.as_ref().map(|file| text(&group.file_name(file))),
        "args": strings(image.args),
        "env": strings(image.env),
        "cwd": fs.as_ref().map(|view| path(&view.cwd)),
        "root": fs.as_ref().map(|view| path(&view.root)),
        "fdlist": descriptors(group, task),
        "clone_ts": task.started_ns(),
        "limits": limits(group),
        "cgroup": [{ "hierarchy_id": 0, "controllers": "", "path": text(&task.cgroup.group().path_from(&group.container.namespaces.cgroup.root)) }],
        "status": {
            "comm": text(comm.split(|b| *b == 0).next().unwrap_or_default()),
            "pid": group.tgid,
            "uid": ids(task, |creds| [creds.uid, creds.euid, creds.suid]),
            "gid": ids(task, |creds| [creds.gid, creds.egid, creds.sgid]),
            "vm_size": mm.with_map(|map| map.iter().map(|area| area.end - area.start).sum::<u64>()),
            "vm_rss": kernfs::resident(task.kernel(), &mm).total * abi::PAGE_SIZE,
        },
        "stat": stat,
        "maps": mappings(group, &mm),
    })
}

fn ids(task: &Task, of: impl Fn(&rights::Credentials) -> [u32; 3]) -> Value {
    let [real, effective, saved] = of(&task.creds());
    json!({ "real": real, "effective": effective, "saved": saved })
}

fn limits(group: &ThreadGroup) -> Value {
    let limits = *group.rlimits.lock();
    let named = LIMITS.iter().zip(limits.iter());
    let all: BTreeMap<_, _> =
        named.map(|(name, (soft, hard))| (*name, json!({ "Cur": soft, "Max": hard }))).collect();
    json!(all)
}

fn descriptors(group: &ThreadGroup, task: &Task) -> Value {
    let Some(table) = task.fds() else { return json!([]) };
    let numbers = table.numbers().into_iter().take(MOST);
    let all = numbers.filter_map(|number| {
        let file = table.get(number).ok()?;
        let mode = file.attr().map_or(0, |attr| attr.mode);
        Some(json!({ "number": number, "path": text(&group.file_name(&file)), "mode": mode }))
    });
    Value::Array(all.collect())
}

fn mappings(group: &ThreadGroup, mm: &mm::Mm) -> Value {
    let areas: Vec<_> = mm.with_map(|map| map.iter().take(MOST).cloned().collect());
    let all = areas.iter().map(|area: &mm::Vma| {
        let has = |bit| area.prot & bit != 0;
        let file = area.file.as_deref();
        let attr = file.and_then(|file| file.attr().ok()).unwrap_or_default();
        json!({
            "address": { "Start": area.start, "End": area.end },
            "permissions": {
                "Read": has(libc::PROT_READ), "Write": has(libc::PROT_WRITE), "Execute": has(libc::PROT_EXEC)
            },
            "private": if area.shared { "s" } else { "p" },
            "offset": area.offset,
            "deviceMajor": abi::stat::major(attr.dev),
            "deviceMinor": abi::stat::minor(attr.dev),
            "inode": attr.ino,
            "pathname": file.map(|file| text(&group.file_name(file))).unwrap_or_default(),
        })
    });
    Value::Array(all.collect())
}
