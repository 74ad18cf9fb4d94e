//! `ringfence events`: a container's usage, and notices that memory ran out.

use crate::output::say;
use crate::values;
use clap::Args;
use lifecycle::{Event, Result, Settings};
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Show the figures once and end
    #[arg(long)]
    pub(crate) stats: bool,
    /// Time between figures, as 5s or 500ms; a number alone counts seconds
    #[arg(long, value_name = "TIME", value_parser = values::seconds, default_value = "5s")]
    pub(crate) interval: Duration,
    /// The container's name
    pub(crate) id: String,
}

pub(crate) fn events(settings: &Settings, args: &Events) -> Result<()> {
    let show = |event| show(&args.id, event);
    match args.stats {
        true => show(Event::Stats(Box::new(lifecycle::stats(settings, &args.id)?))),
        false => lifecycle::events(settings, &args.id, args.interval, show),
    }
}

/// One line. A reader that has left is the end of it.
fn show(id: &str, event: Event) -> Result<()> {
    let mut line = serde_json::json!({ "id": id });
    match event {
        Event::Stats(stats) => {
            line["type"] = "stats".into();
            line["data"] = serde_json::to_value(stats)?;
        }
        Event::OutOfMemory => line["type"] = "oom".into(),
    }
    say(line)
}
