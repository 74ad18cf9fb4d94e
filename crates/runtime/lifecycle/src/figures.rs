//! The figures of sandboxes: what the state directory, the host's control groups and the kernels inside say.
//!
//! A sandbox that is gone, stuck or hostile costs its readers no more than [`PER_SANDBOX`]; then only what the host says
//! of it is shown. What a kernel says is checked (`metrics::checked`).

use crate::directory::{Container, SOCKET};
use crate::record::{Record, Status};
use crate::{Result, Settings, directory, pod};
use bundle::Pod;
use cgroups::{Manager, Stats};
use metrics::{Figure, Sample, Series};
use sandbox::client::Client;
use sandbox::logging::parse_time;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the kernel of one sandbox may take to answer.
const PER_SANDBOX: Duration = Duration::from_secs(2);
/// How long all of them may take together: collectors wait for 10 seconds by default.
const ALL_SANDBOXES: Duration = Duration::from_secs(8);
/// How long a container may take to end once its kernel has.
const AT_END: Duration = Duration::from_millis(500);
/// Most sandboxes that are asked at a time.
const AT_A_TIME: usize = 16;
/// Limits from here on are none: cgroup v1 rounds "no limit" down to pages.
const NO_LIMIT: u64 = i64::MAX as u64 & !0xffff;

/// Annotations with the name and the namespace of a pod, as containerd, CRI-O and Podman set them.
const POD_NAMES: [&str; 2] = ["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"];
const POD_NAMESPACES: [&str; 2] = ["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"];

/// Labels of a series.
type Labels = Vec<(&'static str, String)>;

/// A sandbox: the container that it began with, and those that have joined it.
struct Unit {
    first: Record,
    members: Vec<Record>,
}

impl Unit {
    /// The sandboxes among these containers.
    fn all(records: Vec<Record>) -> Vec<Unit> {
        let ids: HashSet<String> = records.iter().map(|record| record.state.id.clone()).collect();
        let mut units = BTreeMap::new();
        let mut members = Vec::new();
        for record in records.into_iter().filter(|record| record.state.status != Status::Creating) {
            match record.pod() {
                // One that is not there was not joined.
                Pod::Member(id) if ids.contains(&id) => members.push((id, record)),
                _ => {
                    let id = record.state.id.clone();
                    units.insert(id, Unit { first: record, members: Vec::new() });
                }
            }
        }
        for (id, record) in members {
            if let Some(unit) = units.get_mut(&id) {
                unit.members.push(record);
            }
        }
        units.into_values().collect()
    }

    fn is_over(&self) -> bool {
        self.first.state.status == Status::Stopped
    }

    /// What tells it from all others, those before it that had its name among them.
    fn labels(&self) -> Labels {
        let state = &self.first.state;
        let annotation =
            |names: [&str; 2]| names.iter().find_map(|name| state.annotations.get(*name)).cloned();
        let mut labels = vec![("sandbox", state.id.clone())];
        labels.extend(annotation(POD_NAMES).map(|name| ("pod_name", name)));
        labels.extend(annotation(POD_NAMESPACES).map(|name| ("namespace", name)));
        labels.push(("iteration", format!("{:x}", parse_time(&state.created).unwrap_or(0))));
        labels
    }

    /// Its series; an error text when the kernel does not say its part.
    fn read(&self, settings: &Settings, deadline: Instant) -> (Vec<Series>, Option<String>) {
        let labels = self.labels();
        let mut series = self.of_state(&labels);
        let frozen = self.first.is_frozen();
        let mut failure = None;
        for record in [&self.first].into_iter().chain(&self.members) {
            let mut of = labels.clone();
            of.push(("container", record.state.id.clone()));
            let runs = record.state.status == Status::Running && !frozen;
            series.push(Series::new(&metrics::CONTAINER_RUNNING, &of, [], runs.into()));
            if record.state.status == Status::Stopped {
                continue;
            }
            if let Ok(groups) = record.groups() {
                series.extend(of_groups(&groups, &of));
            }
            if frozen || failure.is_some() {
                continue;
            }
            match kernel_figures(settings, &record.state.id, deadline) {
                Ok(figures) => series.extend(figures.into_iter().map(|(figure, sample)| {
                    let of = if figure.scope == metrics::Scope::Container { &of } else { &labels };
                    Series::new(figure, of, sample.labels, sample.value)
                })),
                Err(error) if !ends(settings, record, deadline) => failure = Some(error.to_string()),
                Err(_) => {}
            }
        }
        (series, failure)
    }

    fn of_state(&self, labels: &Labels) -> Vec<Series> {
        let state = &self.first.state;
        let status = if self.first.is_frozen() { Status::Paused } else { state.status };
        let facts = [env!("CARGO_PKG_VERSION").to_string(), status.to_string(), state.owner.clone()];
        let created = parse_time(&state.created).unwrap_or(0);
        vec![
            Series::new(&metrics::SANDBOX_PRESENCE, labels, [], 1),
            Series::new(&metrics::SANDBOX_RUNNING, labels, [], (status == Status::Running).into()),
            Series::new(&metrics::SANDBOX_METADATA, labels, facts, 1),
            Series::new(&metrics::SANDBOX_CREATION, labels, [], created.saturating_mul(1000)),
        ]
    }
}

/// Whether a container with a kernel that does not answer is just ending: that kernel is the first to go.
fn ends(settings: &Settings, record: &Record, deadline: Instant) -> bool {
    let deadline = deadline.min(Instant::now() + AT_END);
    loop {
        let container = Container::at(&settings.state_dir(), &record.state.id);
        if !container.is_some_and(|container| container.is_alive()) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// What the kernel inside says of a container, and of its sandbox if that began with the container.
pub(crate) fn kernel_figures(
    settings: &Settings,
    id: &str,
    deadline: Instant,
) -> Result<Vec<(&'static Figure, Sample)>> {
    let (container, _) = settings.find(id)?;
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("no time is left to ask the sandbox".into());
    }
    let client = Client::connect_within(container.dir()?.as_fd(), SOCKET, left)?;
    Ok(client.metrics(deadline)?)
}

/// What the host's control groups say of a container.
fn of_groups(groups: &Manager, of: &Labels) -> Vec<Series> {
    let Stats { cpu, memory, pids, blkio, .. } = groups.stats();
    if pids.current == 0 && memory.usage.usage == 0 {
        // All of its processes are in the group of its sandbox.
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut add = |figure, own: &[&str], value| {
        all.push(Series::new(figure, of, own.iter().map(|label| label.to_string()), value));
    };
    add(&metrics::HOST_CPU, &["user"], cpu.usage.user);
    add(&metrics::HOST_CPU, &["system"], cpu.usage.kernel);
    add(&metrics::HOST_THROTTLED, &[], cpu.throttling.throttled_time);
    add(&metrics::HOST_MEMORY, &[], memory.usage.usage);
    if (1..NO_LIMIT).contains(&memory.usage.limit) {
        add(&metrics::HOST_MEMORY_LIMIT, &[], memory.usage.limit);
    }
    // Of cgroup v2 and of v1.
    let stat = |names: [&str; 2]| names.iter().find_map(|name| memory.raw.get(*name).copied());
    for (kind, value) in [
        ("anonymous", stat(["anon", "total_rss"])),
        ("file", stat(["file", "total_cache"])),
        ("tmpfs", stat(["shmem", "total_shmem"])),
        ("kernel", Some(memory.kernel.usage)),
    ] {
        if let Some(value) = value {
            add(&metrics::HOST_MEMORY_KIND, &[kind], value);
        }
    }
    for (kind, value) in
        [("all", stat(["pgfault", "total_pgfault"])), ("major", stat(["pgmajfault", "total_pgmajfault"]))]
    {
        if let Some(value) = value {
            add(&metrics::HOST_FAULTS, &[kind], value);
        }
    }
    add(&metrics::HOST_OOM_KILLS, &[], groups.oom_kill_count());
    add(&metrics::HOST_PIDS, &[], pids.current);
    let lists = [
        (&metrics::HOST_IO_BYTES, &blkio.io_service_bytes_recursive),
        (&metrics::HOST_IO, &blkio.io_serviced_recursive),
    ];
    for (figure, list) in lists {
        for entry in list {
            let op = entry.op.to_ascii_lowercase();
            if matches!(op.as_str(), "read" | "write") {
                add(figure, &[&format!("{}:{}", entry.major, entry.minor), &op], entry.value);
            }
        }
    }
    all
}

/// The figures of the sandbox that a container is in; an error when its kernel does not say them.
pub fn sandbox_figures(settings: &Settings, id: &str) -> Result<Vec<Series>> {
    let (_, record) = settings.find(id)?;
    if record.state.status == Status::Stopped {
        return Err("container not running".into());
    }
    let first = pod::sandbox_of(settings, record)?.state.id;
    let units = Unit::all(directory::list(&settings.state_dir())?);
    let Some(unit) = units.iter().find(|unit| unit.first.state.id == first) else {
        return Err(directory::missing(id).into());
    };
    match unit.read(settings, Instant::now() + ALL_SANDBOXES) {
        (_, Some(error)) => Err(format!("the sandbox does not tell its figures: {error}").into()),
        (series, None) => Ok(series),
    }
}

/// The sandboxes of a state directory, for a metric server.
pub struct Watcher {
    settings: Settings,
    seen: Mutex<Seen>,
}

/// Sandboxes that were there at the last look, by name and time of creation, and how many there have been.
#[derive(Default)]
struct Seen {
    present: HashSet<(String, String)>,
    count: u64,
}

impl Watcher {
    /// For the state directory of these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: settings.clone(), seen: Mutex::default() }
    }

    /// Whether the state directory can be read.
    pub fn check(&self) -> Result<()> {
        let dir = self.settings.state_dir();
        let read = std::fs::read_dir(&dir);
        read.map(drop).map_err(|error| {
            let dir = dir.display();
            format!("state directory {dir}: {error}; choose another with --root, or use --allow-unknown-root")
                .into()
        })
    }

    /// The figures of all sandboxes.
    pub fn scrape(&self) -> Result<Vec<Series>> {
        let units = Unit::all(directory::list(&self.settings.state_dir())?);
        let deadline = Instant::now() + ALL_SANDBOXES;
        let (next, read) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = unit.read(&self.settings, deadline.min(Instant::now() + PER_SANDBOX));
                if let Some(error) = &result.1 {
                    log::warn!("sandbox {} does not tell its figures: {error}", unit.first.state.id);
                }
                read.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(result);
            }
        };
        thread::scope(|scope| {
            for _ in 1..units.len().min(AT_A_TIME) {
                // With fewer threads it takes longer.
                let _ = thread::Builder::new().name("scrape".into()).spawn_scoped(scope, work);
            }
            work();
        });
        let read = read.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let broken = read.iter().filter(|(_, failure)| failure.is_some()).count() as u64;
        let mut series: Vec<Series> = read.into_iter().flat_map(|(series, _)| series).collect();
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        let running = units.iter().filter(|unit| unit.first.state.status == Status::Running).count() as u64;
        series.push(Series::new(&metrics::SANDBOXES_RUNNING, &[], [], running));
        series.push(Series::new(&metrics::SANDBOXES_BROKEN, &[], [], broken));
        series.push(Series::new(&metrics::SANDBOXES_SEEN, &[], [], self.see(&units)));
        Ok(series)
    }

    /// Counts the sandboxes that were not there at the last look.
    fn see(&self, units: &[Unit]) -> u64 {
        let alive = units.iter().filter(|unit| !unit.is_over());
        let present: HashSet<_> =
            alive.map(|unit| (unit.first.state.id.clone(), unit.first.state.created.clone())).collect();
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        seen.count += present.difference(&seen.present).count() as u64;
        seen.present = present;
        seen.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{StateDir, record};

    fn value(series: &[Series], figure: &'static Figure) -> Option<u64> {
        series.iter().find(|one| std::ptr::eq(one.figure, figure)).map(|one| one.value)
    }

    #[test]
    fn containers_belong_to_sandboxes() {
        let mut member = record("b", Status::Running, false);
        member.state.annotations =
            [("io.kubernetes.cri.container-type", "container"), ("io.kubernetes.cri.sandbox-id", "a")]
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .into();
        let mut first = record("a", Status::Running, false);
        first.state.created = "1970-01-01T00:00:01.000000Z".into();
        first.state.annotations = [("io.kubernetes.cri.sandbox-name", "web")]
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .into();
        let creating = record("c", Status::Creating, false);
        let units = Unit::all(vec![member.clone(), first, creating]);
        assert_eq!(units.len(), 1);
        assert_eq!((units[0].first.state.id.as_str(), units[0].members.len()), ("a", 1));
        let labels: Vec<String> =
            units[0].labels().iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(labels, ["sandbox=a", "pod_name=web", "iteration=f4240"]);
        assert_eq!(Unit::all(vec![member]).len(), 1);
    }

    #[test]
    fn a_sandbox_that_does_not_answer_is_counted() {
        let dir = StateDir::new("figures");
        dir.ended("gone");
        let stuck = dir.living("stuck", &record("stuck", Status::Running, false));
        // Nothing accepts the connection, or answers.
        let _listener = channel::listen_in(stuck.container().dir().unwrap().as_fd(), SOCKET).unwrap();
        let watcher = Watcher::new(&dir.settings());
        let start = Instant::now();
        let series = watcher.scrape().unwrap();
        assert!(start.elapsed() < ALL_SANDBOXES);
        assert_eq!(value(&series, &metrics::SANDBOXES_BROKEN), Some(1));
        assert_eq!(value(&series, &metrics::SANDBOXES_RUNNING), Some(1));
        assert_eq!(value(&series, &metrics::SANDBOXES_SEEN), Some(1));
        let present = series.iter().filter(|one| one.figure.name == "sandbox_presence").count();
        assert_eq!(present, 2);
        assert!(sandbox_figures(&dir.settings(), "gone").is_err());
        watcher.check().unwrap();
        assert_eq!(value(&watcher.scrape().unwrap(), &metrics::SANDBOXES_SEEN), Some(1));
    }
}
