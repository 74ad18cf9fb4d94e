//! `ringfence export-metrics`, `metric-metadata` and `metric-server`: figures for Prometheus.

use super::list::ListFormat;
use crate::output::say;
use crate::values;
use clap::Args;
use exporter::{Address, Filter, Listener};
use lifecycle::{Result, Settings, Watcher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Args)]
pub(crate) struct ExportMetrics {
    #[command(flatten)]
    names: Names,
    /// Show only figures with names, without the prefix, that match this regular expression
    #[arg(long, value_name = "REGEX", default_value = "", value_parser = filter)]
    sandbox_metrics_filter: Filter,
    /// A container; the figures are those of its sandbox
    id: String,
}

#[derive(Debug, Args)]
pub(crate) struct MetricMetadata {
    #[command(flatten)]
    names: Names,
    /// Form of the output
    #[arg(long, short = 'f', value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

#[derive(Debug, Args)]
pub(crate) struct MetricServer {
    #[command(flatten)]
    names: Names,
    /// File for the server's process ID, written once it answers and removed at its end
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Start, and go on, without a --root that can be read
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    allow_unknown_root: bool,
    /// HOST:PORT, or the path of a Unix socket; %RUNTIME_ROOT% is replaced by the state directory [default: --metric-server]
    #[arg(value_parser = values::address)]
    address: Option<String>,
}

/// How figures are called.
#[derive(Debug, Args)]
struct Names {
    /// What the names begin with
    #[arg(long, value_name = "PREFIX", default_value = "runsc_", value_parser = prefix)]
    exporter_prefix: String,
}

fn prefix(text: &str) -> std::result::Result<String, String> {
    match exporter::valid_prefix(text) {
        true => Ok(text.into()),
        false => Err("use letters, digits and any of _:, no digit first, at most 64".into()),
    }
}

fn filter(text: &str) -> std::result::Result<Filter, String> {
    Filter::new(text)
}

pub(crate) fn export(settings: &Settings, args: &ExportMetrics) -> Result<()> {
    let series = lifecycle::sandbox_figures(settings, &args.id)?;
    let text = exporter::text(&series, &args.names.exporter_prefix, &args.sandbox_metrics_filter);
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|error| format!("standard output: {error}").into())
}

pub(crate) fn metadata(args: &MetricMetadata) -> Result<()> {
    let prefix = &args.names.exporter_prefix;
    if args.format == ListFormat::Json {
        let one = |figure: &&metrics::Figure| {
            serde_json::json!({
                "name": format!("{prefix}{}", figure.name),
                "type": figure.kind.name(),
                "unit": figure.unit.name(),
                "of": figure.scope.name(),
                "source": figure.source.name(),
                "labels": figure.labels,
                "help": figure.help,
            })
        };
        let all: Vec<_> = metrics::ALL.iter().map(one).collect();
        return say(serde_json::to_string(&all)?);
    }
    let width = metrics::ALL.iter().map(|figure| figure.name.len()).max().unwrap_or(0) + prefix.len();
    say(format_args!("{:<width$} {:<7} {:<7} {:<9} MEANING", "NAME", "TYPE", "UNIT", "OF"))?;
    for figure in metrics::ALL {
        let name = format!("{prefix}{}", figure.name);
        let (kind, unit, scope) = (figure.kind.name(), figure.unit.name(), figure.scope.name());
        say(format_args!("{name:<width$} {kind:<7} {unit:<7} {scope:<9} {}", figure.help))?;
    }
    Ok(())
}

/// `default`: the global flag --metric-server.
pub(crate) fn serve(settings: &Settings, default: Option<&str>, args: &MetricServer) -> Result<()> {
    let Some(address) = args.address.as_deref().or(default) else {
        return Err("metric-server: no address; give HOST:PORT or the path of a Unix socket".into());
    };
    let root = settings.state_dir();
    let address = Address::parse(&address.replace("%RUNTIME_ROOT%", &root.to_string_lossy()))?;
    let source = Figures {
        watcher: Watcher::new(settings),
        root,
        prefix: args.names.exporter_prefix.clone(),
        allow_unknown_root: args.allow_unknown_root,
    };
    exporter::Source::check(&source, None)?;
    let listener =
        Listener::bind(&address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let bound = listener.address();
    let mut pid_file = None;
    let ready = || {
        if let Some(path) = &args.pid_file {
            pid_file = Some(PidFile::write(path)?);
        }
        // Port 0 is any free one: the caller learns which.
        writeln!(std::io::stdout(), "listening on {bound}")
    };
    let served = exporter::serve(listener, Arc::new(source), ready);
    drop(pid_file);
    served.map_err(|error| format!("metric-server: {error}").into())
}

/// A file with this process's ID, removed when it is dropped.
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &Path) -> std::io::Result<Self> {
        let written = std::fs::write(path, std::process::id().to_string());
        written.map_err(|error| std::io::Error::other(format!("{}: {error}", path.display())))?;
        Ok(Self(path.into()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What the server tells.
struct Figures {
    watcher: Watcher,
    root: PathBuf,
    prefix: String,
    allow_unknown_root: bool,
}

impl exporter::Source for Figures {
    fn scrape(&self, filter: &Filter) -> std::result::Result<String, String> {
        self.check(None)?;
        let series = self.watcher.scrape().map_err(|error| error.to_string())?;
        Ok(exporter::text(&series, &self.prefix, filter))
    }

    fn check(&self, root: Option<&str>) -> std::result::Result<(), String> {
        if let Some(root) = root.filter(|root| Path::new(root) != self.root) {
            return Err(format!("this server is for {}, not for {root}", self.root.display()));
        }
        match self.watcher.check() {
            Err(error) if !self.allow_unknown_root => Err(error.to_string()),
            _ => Ok(()),
        }
    }
}
