//! `events`: a container's usage, and notices that its memory ran out.

use crate::directory::Container;
use crate::record::{Record, Status};
use crate::{Result, Settings, figures};
use bundle::Pod;
use cgroups::stats::Pids;
use cgroups::{Manager, Stats};
use metrics::{Figure, Sample, Unit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// One line of `events`.
#[derive(Clone, Debug)]
pub enum Event {
    /// Figures, at every interval.
    Stats(Box<Stats>),
    /// The host killed a process for want of memory.
    OutOfMemory,
}

/// How long the kernel inside may take to tell its part of the figures.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a container uses at present.
pub fn stats(settings: &Settings, id: &str) -> Result<Stats> {
    let (_, record, groups) = running(settings, id)?;
    Ok(complete(settings, &record, groups.stats()))
}

/// Adds what the kernel inside says: processes, interfaces, and its own figures. Without an answer the figures are those
/// of the host alone.
fn complete(settings: &Settings, record: &Record, mut stats: Stats) -> Stats {
    if record.is_frozen() {
        return stats;
    }
    let deadline = Instant::now() + PATIENCE;
    let id = &record.state.id;
    let own = match figures::kernel_figures(settings, id, deadline) {
        Ok(own) => own,
        Err(error) => {
            log::warn!("{id}: the sandbox does not tell its figures: {error}");
            return stats;
        }
    };
    let count =
        |name: &Figure| own.iter().find(|(figure, _)| *figure == name).map(|(_, sample)| sample.value);
    if let Some(threads) = count(&metrics::THREADS) {
        stats.pids = Pids { current: threads, limit: count(&metrics::THREADS_MAX).unwrap_or(0) };
    }
    // The network is the sandbox's.
    let sandbox = match record.pod() {
        Pod::Member(sandbox) => figures::kernel_figures(settings, &sandbox, deadline).unwrap_or_default(),
        _ => Vec::new(),
    };
    stats.network_interfaces = interfaces(own.iter().chain(&sandbox));
    stats.ringfence =
        own.iter().map(|(figure, sample)| (key(figure, sample), number(figure, sample))).collect();
    stats
}

/// Interfaces as `runc events` names their figures; nothing without a network of the sandbox's own.
fn interfaces<'a>(all: impl Iterator<Item = &'a (&'static Figure, Sample)>) -> Option<Vec<Value>> {
    let names: [(&Figure, &str); 8] = [
        (&metrics::NETWORK_RECEIVED_BYTES, "RxBytes"),
        (&metrics::NETWORK_RECEIVED, "RxPackets"),
        (&metrics::NETWORK_RECEIVE_ERRORS, "RxErrors"),
        (&metrics::NETWORK_RECEIVE_DROPS, "RxDropped"),
        (&metrics::NETWORK_SENT_BYTES, "TxBytes"),
        (&metrics::NETWORK_SENT, "TxPackets"),
        (&metrics::NETWORK_SEND_ERRORS, "TxErrors"),
        (&metrics::NETWORK_SEND_DROPS, "TxDropped"),
    ];
    let mut interfaces: BTreeMap<&str, Value> = BTreeMap::new();
    for (figure, sample) in all {
        let Some((_, field)) = names.iter().find(|(known, _)| known == figure) else { continue };
        let Some(name) = sample.labels.first() else { continue };
        let interface = interfaces.entry(name).or_insert_with(|| serde_json::json!({ "Name": name }));
        interface[*field] = sample.value.into();
    }
    (!interfaces.is_empty()).then(|| interfaces.into_values().collect())
}

/// The name of a series, with its labels as Prometheus writes them.
fn key(figure: &Figure, sample: &Sample) -> String {
    let labels = figure.labels.iter().zip(&sample.labels).map(|(name, value)| format!("{name}={value:?}"));
    match labels.collect::<Vec<_>>().join(",") {
        labels if labels.is_empty() => figure.name.into(),
        labels => format!("{}{{{labels}}}", figure.name),
    }
}

fn number(figure: &Figure, sample: &Sample) -> Value {
    match figure.unit {
        Unit::Seconds => figure.unit.scale(sample.value).into(),
        Unit::Bytes | Unit::Count => sample.value.into(),
    }
}

/// Reports figures at every interval, and every time memory runs out, until the container ends or `report` fails.
pub fn events(
    settings: &Settings,
    id: &str,
    interval: Duration,
    mut report: impl FnMut(Event) -> Result<()>,
) -> Result<()> {
    let (container, record, groups) = running(settings, id)?;
    let oom = groups.oom_events()?;
    let pid = Pid::from_raw(record.state.pid).ok_or("container not running")?;
    let end = pidfd_open(pid, PidfdFlags::empty())?;
    let (mut next, mut seen) = (Instant::now() + interval, groups.oom_kill_count());
    while container.is_alive() {
        let mut fds =
            [PollFd::new(&oom, PollFlags::IN), PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
        let left = next.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [out_of_memory, ended] = [0, 1].map(|i: usize| !fds[i].revents().is_empty());
        if out_of_memory {
            oom.drain();
            let kills = groups.oom_kill_count();
            if kills > seen {
                seen = kills;
                report(Event::OutOfMemory)?;
            }
        }
        if ended {
            break;
        }
        if Instant::now() >= next {
            report(Event::Stats(Box::new(complete(settings, &record, groups.stats()))))?;
            next = Instant::now() + interval;
        }
    }
    Ok(())
}

fn running(settings: &Settings, id: &str) -> Result<(Container, Record, Manager)> {
    let (container, record) = settings.find(id)?;
    if record.state.status == Status::Stopped {
        return Err("container not running".into());
    }
    let groups = record.groups()?;
    Ok((container, record, groups))
}
