//! `ringfence install` and `uninstall`: the Docker daemon's configuration. Other settings stay as they are, a second
//! run changes nothing, and the file is replaced as a whole or not at all.

use crate::USAGE_ERROR;
use clap::Args;
use lifecycle::{Error, Result};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Install {
    #[command(flatten)]
    pub(crate) daemon: Uninstall,
    /// Replace a runtime of that name that is another program
    #[arg(long)]
    pub(crate) clobber: bool,
    /// Global flags that Docker is to start the runtime with
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAG")]
    pub(crate) flags: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Uninstall {
    /// The daemon's configuration
    #[arg(long, alias = "config_file", value_name = "FILE", default_value = "/etc/docker/daemon.json")]
    pub(crate) config_file: PathBuf,
    /// Name of the runtime, as `docker run --runtime` takes it
    #[arg(long, value_name = "NAME", default_value = "ringfence")]
    pub(crate) runtime: String,
}

const RUNTIMES: &str = "runtimes";

/// Adds the runtime to Docker's configuration. `check` fails for what is no global flag.
pub(crate) fn install(args: &Install, check: fn(&[String]) -> std::result::Result<(), String>) -> Result<()> {
    // Those before the command are for this command alone, which has no use for them.
    if std::env::args_os().nth(1).is_none_or(|first| first != "install") {
        return Err("flags that Docker is to give to the runtime come after install".into());
    }
    if let Err(what) = check(&args.flags) {
        return Err(Error::with_status(USAGE_ERROR, format!("flags for the runtime: {what}")));
    }
    let program = std::env::current_exe()?;
    let mut entry = json!({ "path": program });
    if !args.flags.is_empty() {
        entry["runtimeArgs"] = json!(args.flags);
    }
    let file = &args.daemon.config_file;
    let mut config = read(file)?;
    if !add(&mut config, &args.daemon.runtime, entry, args.clobber).map_err(|m| at(file, &m))? {
        println!("{} has the runtime {} already.", file.display(), args.daemon.runtime);
        return Ok(());
    }
    write(file, &config)?;
    println!("Added runtime {} to {}; restart or reload dockerd now.", args.daemon.runtime, file.display());
    Ok(())
}

pub(crate) fn uninstall(args: &Uninstall) -> Result<()> {
    let file = &args.config_file;
    let mut config = read(file)?;
    if !remove(&mut config, &args.runtime).map_err(|m| at(file, &m))? {
        println!("{} has no runtime {}.", file.display(), args.runtime);
        return Ok(());
    }
    write(file, &config)?;
    println!("Removed runtime {} from {}; restart or reload dockerd now.", args.runtime, file.display());
    Ok(())
}

fn at(file: &Path, message: &str) -> Error {
    format!("{}: {message}", file.display()).into()
}

/// Adds a runtime; whether that changes anything.
fn add(
    config: &mut Map<String, Value>,
    name: &str,
    entry: Value,
    clobber: bool,
) -> std::result::Result<bool, String> {
    let runtimes = config.entry(RUNTIMES).or_insert_with(|| json!({}));
    let Some(runtimes) = runtimes.as_object_mut() else { return Err("runtimes is not an object".into()) };
    match runtimes.get(name) {
        Some(old) if *old == entry => return Ok(false),
        Some(old) if old["path"] != entry["path"] && !clobber => {
            return Err(format!(
                "runtime {name} is {} already; choose --runtime, or use --clobber",
                old["path"]
            ));
        }
        _ => {}
    }
    runtimes.insert(name.into(), entry);
    Ok(true)
}

/// Removes a runtime; whether that changes anything.
fn remove(config: &mut Map<String, Value>, name: &str) -> std::result::Result<bool, String> {
    if config.get("default-runtime").is_some_and(|default| default == name) {
        return Err(format!("{name} is the default-runtime; change that first"));
    }
    let Some(runtimes) = config.get_mut(RUNTIMES) else { return Ok(false) };
    let Some(list) = runtimes.as_object_mut() else { return Err("runtimes is not an object".into()) };
    let removed = list.remove(name).is_some();
    if removed && list.is_empty() {
        config.remove(RUNTIMES);
    }
    Ok(removed)
}

fn read(file: &Path) -> Result<Map<String, Value>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Map::new()),
        Err(error) => return Err(at(file, &error.to_string())),
    };
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(&text)
        .map_err(|error| at(file, &format!("not a JSON object: {error}; mend it first")))
}

/// Writes beside the file and renames; a reader sees the old one or the new one.
fn write(file: &Path, config: &Map<String, Value>) -> Result<()> {
    let mut text = serde_json::to_string_pretty(config)?;
    text.push('\n');
    // A link stays a link.
    let target = file.canonicalize().unwrap_or_else(|_| file.into());
    let dir = target.parent().unwrap_or(Path::new("."));
    let beside = dir.join(format!(".{}.{}", name_of(&target), std::process::id()));
    let written = (|| {
        fs::create_dir_all(dir)?;
        let mut new = fs::File::create(&beside)?;
        if let Ok(old) = fs::metadata(&target) {
            new.set_permissions(old.permissions())?;
        }
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&beside, &target)
    })();
    written.map_err(|error: std::io::Error| {
        let _ = fs::remove_file(&beside);
        at(file, &error.to_string())
    })
}

fn name_of(file: &Path) -> String {
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn what_else_is_there_stays() {
        let old = object(json!({ "debug": true, "runtimes": { "runc": { "path": "/runc" } } }));
        let mut config = old.clone();
        let entry = json!({ "path": "/r", "runtimeArgs": ["--debug"] });
        assert_eq!(add(&mut config, "r", entry.clone(), false), Ok(true));
        assert_eq!(add(&mut config, "r", entry.clone(), false), Ok(false));
        assert_eq!(config["debug"], true);
        assert_eq!(config["runtimes"]["r"], entry);
        // The same program with other flags, and another program.
        assert_eq!(add(&mut config, "r", json!({ "path": "/r" }), false), Ok(true));
        assert!(add(&mut config, "r", json!({ "path": "/other" }), false).unwrap_err().contains("--clobber"));
        assert_eq!(add(&mut config, "r", json!({ "path": "/other" }), true), Ok(true));
        assert_eq!(remove(&mut config, "r"), Ok(true));
        assert_eq!(remove(&mut config, "r"), Ok(false));
        assert_eq!(config, old);
    }

    #[test]
    fn an_empty_configuration_is_empty_again() {
        let mut config = Map::new();
        add(&mut config, "r", json!({ "path": "/r" }), false).unwrap();
        remove(&mut config, "r").unwrap();
        assert!(config.is_empty());
        let mut config = object(json!({ "default-runtime": "r", "runtimes": { "r": {} } }));
        assert!(remove(&mut config, "r").unwrap_err().contains("default-runtime"));
        assert!(add(&mut object(json!({ "runtimes": [] })), "r", json!({}), false).is_err());
    }
}
