//! The figures that a sandbox can be asked for: their names, types, units, labels and meaning, and values of them.
//!
//! [`Figure`] describes one, [`ALL`] lists them in the order in which they are shown. The kernel and the runtime make
//! [`Sample`]s; the reader of another process's samples uses [`checked`], which knows every name and bounds all else.
//! docs/metrics.md is made from the list.

#![forbid(unsafe_code)]

mod checks;
mod figures;

pub use checks::{MAX_SAMPLES, checked};
pub use figures::*;

use serde::{Deserialize, Serialize};

/// Whether a value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows as long as the sandbox lives. The name ends in `_total`.
    Counter,
    /// It may fall.
    Gauge,
}

impl Kind {
    /// As Prometheus names it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds; samples have nanoseconds.
    Seconds,
}

impl Unit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
        }
    }

    /// A sample's value in this unit.
    pub fn scale(self, value: u64) -> f64 {
        match self {
            Unit::Seconds => value as f64 / 1e9,
            Unit::Count | Unit::Bytes => value as f64,
        }
    }
}

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One container: the label `container` names it.
    Container,
    /// One sandbox, with all of its containers.
    Sandbox,
    /// All sandboxes of a metric server.
    Server,
}

impl Scope {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Container => "container",
            Scope::Sandbox => "sandbox",
            Scope::Server => "server",
        }
    }
}

/// Where values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel inside.
    Kernel,
    /// The host's control groups.
    ControlGroup,
    /// The state directory.
    State,
}

impl Source {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Kernel => "kernel inside",
            Source::ControlGroup => "control group of the host",
            Source::State => "state directory",
        }
    }
}

/// One figure.
#[derive(Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name, without the exporter's prefix.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// What it is about.
    pub scope: Scope,
    /// Where values come from.
    pub source: Source,
    /// Labels beside those that say which sandbox and container it is.
    pub labels: &'static [&'static str],
    /// Its meaning.
    pub help: &'static str,
}

/// The figure of that name.
pub fn figure(name: &str) -> Option<&'static Figure> {
    ALL.iter().find(|figure| figure.name == name).copied()
}

/// A value of a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The figure's name.
    pub name: String,
    /// Values of the figure's own labels, in its order.
    pub labels: Vec<String>,
    /// The value; of a figure in seconds, nanoseconds.
    pub value: u64,
}

impl Sample {
    /// How long its name and its labels are together, in bytes.
    pub fn text_len(&self) -> usize {
        self.name.len() + self.labels.iter().map(String::len).sum::<usize>()
    }
}

/// A value as it is shown: with the labels that say what it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The figure.
    pub figure: &'static Figure,
    /// Names and values of all labels.
    pub labels: Vec<(&'static str, String)>,
    /// As in a [`Sample`].
    pub value: u64,
}

impl Series {
    /// A value of a figure: `of` says which sandbox and container it is of, `own` has values of the figure's labels.
    pub fn new(
        figure: &'static Figure,
        of: &[(&'static str, String)],
        own: impl IntoIterator<Item = String>,
        value: u64,
    ) -> Series {
        let own = figure.labels.iter().copied().zip(own);
        Series { figure, labels: of.iter().cloned().chain(own).collect(), value }
    }
}

/// Samples in the making.
#[derive(Debug, Default)]
pub struct Samples(Vec<Sample>);

impl Samples {
    /// Adds a value of a figure, with values of its labels.
    pub fn add(&mut self, figure: &'static Figure, labels: &[&str], value: u64) {
        debug_assert_eq!(labels.len(), figure.labels.len(), "labels of {}", figure.name);
        let labels = labels.iter().map(|label| label.to_string()).collect();
        self.0.push(Sample { name: figure.name.into(), labels, value });
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Sample> {
        self.0
    }
}
