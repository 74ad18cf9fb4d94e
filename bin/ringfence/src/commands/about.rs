//! Commands that describe this program or machine: `version`, `flags`, `cpu-features`.

use crate::output::say;
use clap::Command;
use lifecycle::Result;

pub(crate) fn version(grammar: &Command) -> Result<()> {
    say(grammar.render_version().trim_end())
}

/// A line for each global flag: its name and value, its default, what it is for.
pub(crate) fn flags(grammar: &Command) -> Result<()> {
    for flag in grammar.get_arguments() {
        let Some(name) = flag.get_long().filter(|_| flag.get_id() != "version") else { continue };
        let value = flag.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
        let value = value.filter(|_| flag.get_action().takes_values() && !flag.is_require_equals_set());
        let value = value.map_or_else(String::new, |value| format!(" {value}"));
        let default = flag.get_default_values().first().map(|default| default.to_string_lossy().into_owned());
        let default = default.map_or_else(String::new, |default| format!(" [default: {default}]"));
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let help = if flag.is_hide_set() { format!("of runsc: {help}") } else { help };
        say(format_args!("--{name}{value}\n    {help}{default}"))?;
    }
    Ok(())
}

/// As /proc/cpuinfo has them, with commas between.
pub(crate) fn cpu_features() -> Result<()> {
    let text = std::fs::read_to_string("/proc/cpuinfo").map_err(|error| format!("/proc/cpuinfo: {error}"))?;
    let flags =
        text.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':').map(|(_, flags)| flags));
    let flags: Vec<_> = flags.ok_or("/proc/cpuinfo has no line of flags")?.split_whitespace().collect();
    say(flags.join(","))
}
