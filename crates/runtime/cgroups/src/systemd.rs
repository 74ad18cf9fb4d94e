//! The systemd driver: the group is a transient scope (or slice) that systemd makes, with the limits as its
//! properties, so that systemd does not undo them.
//!
//! systemd is asked through its own `busctl`, which speaks D-Bus to the system's or the user's instance.

use crate::{Error, Result, convert, host_pids_max};
use oci_spec::runtime::LinuxResources;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A transient unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unit {
    /// The slice that it is in.
    slice: String,
    /// Its name.
    name: String,
    /// It belongs to the user's instance of systemd.
    user: bool,
    /// What to call systemd with.
    program: PathBuf,
}

impl Unit {
    /// From `linux.cgroupsPath` in the form `slice:prefix:name`; without one, a scope named after the container.
    pub(crate) fn parse(path: Option<&str>, id: &str, user: bool) -> Result<Self> {
        let default = format!(":ringfence:{id}");
        let path = path.unwrap_or(&default);
        let parts: Vec<&str> = path.split(':').collect();
        let [slice, prefix, name] = parts[..] else {
            return Err(Error::Config(format!(
                "linux.cgroupsPath: expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, \
                 got {path:?} instead"
            )));
        };
        let slice = match slice {
            "" if user => "user.slice",
            "" => "system.slice",
            slice => slice,
        };
        let name = match (prefix, name) {
            (_, name) if name.ends_with(".slice") => name.into(),
            ("", name) => format!("{name}.scope"),
            (prefix, name) => format!("{prefix}-{name}.scope"),
        };
        expand(slice)?;
        Ok(Self { slice: slice.into(), name, user, program: "busctl".into() })
    }

    /// Where its group is, absolute in each hierarchy.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        let mut path = PathBuf::from("/");
        if self.user {
            // Slices of the user's instance lie below that instance.
            let answer = self.busctl(&["get-property", SERVICE, OBJECT, MANAGER, "ControlGroup"])?;
            let group = answer.trim().trim_start_matches("s ").trim_matches('"');
            path.push(group.trim_start_matches('/'));
        }
        Ok(path.join(expand(&self.slice)?).join(&self.name))
    }

    /// Makes the unit with one process in it. The group appears a moment later.
    pub(crate) fn start(&self, pid: u32, v2: bool) -> Result<()> {
        let mut properties = vec![
            property("Description", "s", &format!("container {}", self.name)),
            property("DefaultDependencies", "b", "false"),
            property("MemoryAccounting", "b", "true"),
            property("CPUAccounting", "b", "true"),
            property("TasksAccounting", "b", "true"),
            property(if v2 { "IOAccounting" } else { "BlockIOAccounting" }, "b", "true"),
        ];
        match self.name.ends_with(".slice") {
            true => properties.push(property("Wants", "as", &format!("1 {}", self.slice))),
            false => {
                properties.push(property("Slice", "s", &self.slice));
                properties.push(property("Delegate", "b", "true"));
                properties.push(property("PIDs", "au", &format!("1 {pid}")));
            }
        }
        let call = |properties: &[Property]| {
            let mut args = vec!["ssa(sv)a(sa(sv))".to_string(), self.name.clone(), "replace".into()];
            args.extend(list(properties));
            args.push("0".into());
            self.call("StartTransientUnit", &args)
        };
        match call(&properties) {
            // One of that name is left over from a container that failed.
            Err(Error::Systemd(text))
                if text.contains("already exists") || text.contains("was already loaded") =>
            {
                let _ = self.call("ResetFailedUnit", &["s".into(), self.name.clone()]);
                call(&properties)
            }
            other => other,
        }
    }

    /// Tells systemd of the limits.
    pub(crate) fn set(&self, resources: &LinuxResources, v2: bool) -> Result<()> {
        let properties = properties(resources, v2)?;
        if properties.is_empty() {
            return Ok(());
        }
        let mut args = vec!["sba(sv)".to_string(), self.name.clone(), "true".into()];
        args.extend(list(&properties));
        self.call("SetUnitProperties", &args)
    }

    /// Tells systemd of the group's share of the processors alone.
    pub(crate) fn set_weight(&self, weight: u64, v2: bool) -> Result<()> {
        let name = if v2 { "CPUWeight" } else { "CPUShares" };
        let mut args = vec!["sba(sv)".to_string(), self.name.clone(), "true".into()];
        args.extend(list(&[property(name, "t", &weight.to_string())]));
        self.call("SetUnitProperties", &args)
    }

    /// Ends the unit; it may have ended before.
    pub(crate) fn stop(&self) -> Result<()> {
        let gone = |text: &str| text.contains("not loaded") || text.contains("NoSuchUnit");
        match self.call("StopUnit", &["ss".into(), self.name.clone(), "replace".into()]) {
            Err(Error::Systemd(text)) if gone(&text) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                let _ = self.call("ResetFailedUnit", &["s".into(), self.name.clone()]);
                Ok(())
            }
        }
    }

    fn call(&self, method: &str, args: &[String]) -> Result<()> {
        let mut all = vec!["call", SERVICE, OBJECT, MANAGER, method];
        all.extend(args.iter().map(String::as_str));
        self.busctl(&all).map(drop)
    }

    fn busctl(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.arg(if self.user { "--user" } else { "--system" }).arg("--quiet").arg("--").args(args);
        let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::Systemd(
                "the systemd cgroup driver needs busctl, which is not there; use the cgroupfs driver".into(),
            ),
            _ => Error::Systemd(format!("busctl: {error}")),
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let what = args.get(4).unwrap_or(&"");
        Err(Error::Systemd(format!("systemd: {what} {}: {}", self.name, text.trim().escape_debug())))
    }

    #[cfg(test)]
    pub(crate) fn with_program(self, program: &Path) -> Self {
        Self { program: program.into(), ..self }
    }
}

const SERVICE: &str = "org.freedesktop.systemd1";
const OBJECT: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// Name, signature, and value in busctl's words.
type Property = (String, &'static str, String);

fn property(name: &str, signature: &'static str, value: &str) -> Property {
    (name.into(), signature, value.into())
}

/// An array of properties as arguments. A string may hold blanks; an array's words are arguments of their own.
fn list(properties: &[Property]) -> Vec<String> {
    let mut args = vec![properties.len().to_string()];
    for (name, signature, value) in properties {
        args.extend([name.clone(), signature.to_string()]);
        match signature.starts_with('a') {
            true => args.extend(value.split(' ').map(String::from)),
            false => args.push(value.clone()),
        }
    }
    args
}

/// The limits that systemd has properties for. -1 is no limit.
fn properties(resources: &LinuxResources, v2: bool) -> Result<Vec<Property>> {
    let mut all = Vec::new();
    let mut add = |name: &str, value: u64| all.push(property(name, "t", &value.to_string()));
    let limit = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
    if let Some(memory) = resources.memory() {
        let most = memory.limit().unwrap_or(0);
        if most != 0 {
            add(if v2 { "MemoryMax" } else { "MemoryLimit" }, limit(most));
        }
        if v2 {
            if let Some(swap) = convert::swap_alone(memory.swap().unwrap_or(0), most)? {
                add("MemorySwapMax", limit(swap));
            }
            if let Some(low) = memory.reservation().filter(|low| *low != 0) {
                add("MemoryLow", limit(low));
            }
        }
    }
    if let Some(cpu) = resources.cpu() {
        if let Some(shares) = cpu.shares().filter(|shares| *shares != 0) {
            match v2 {
                true => add("CPUWeight", convert::weight_of_shares(shares)),
                false => add("CPUShares", shares),
            }
        }
        let (quota, period) = (cpu.quota().unwrap_or(0), cpu.period().unwrap_or(0));
        if period != 0 {
            add("CPUQuotaPeriodUSec", period);
        }
        if quota != 0 || period != 0 {
            add("CPUQuotaPerSecUSec", per_second(quota, period));
        }
    }
    if let Some(limit) = resources.pids().as_ref().map(|pids| pids.limit()).filter(|limit| *limit != 0) {
        add("TasksMax", host_pids_max(limit).unwrap_or(u64::MAX));
    }
    Ok(all)
}

/// Microseconds per second, rounded up to the hundredths of a processor that systemd keeps, so that groups below can
/// have what was asked for.
fn per_second(quota: i64, period: u64) -> u64 {
    let period = if period == 0 { 100_000 } else { period };
    match u64::try_from(quota) {
        Ok(quota) if quota > 0 => (quota.saturating_mul(1_000_000) / period).div_ceil(10_000) * 10_000,
        _ => u64::MAX,
    }
}

/// The path of a slice: `a-b.slice` is `a.slice/a-b.slice`.
fn expand(slice: &str) -> Result<PathBuf> {
    let bad = || Error::Config(format!("linux.cgroupsPath: {slice:?} is not the name of a slice"));
    let name = slice
        .strip_suffix(".slice")
        .filter(|name| !name.is_empty() && !name.contains('/'))
        .ok_or_else(bad)?;
    let mut path = PathBuf::new();
    if name == "-" {
        return Ok(path);
    }
    let mut prefix = String::new();
    for part in name.split('-') {
        if part.is_empty() {
            return Err(bad());
        }
        path.push(format!("{prefix}{part}.slice"));
        prefix = format!("{prefix}{part}-");
    }
    Ok(path)
}

/// Whether systemd has put a process where it belongs.
pub(crate) fn has_joined(dir: &Path, pid: u32) -> bool {
    let procs = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    procs.lines().any(|line| line == pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_places() {
        let unit = |path: Option<&str>| Unit::parse(path, "id", false);
        let path = |path| unit(path).and_then(|unit| unit.path()).map(|path| path.display().to_string());
        assert_eq!(path(None).unwrap(), "/system.slice/ringfence-id.scope");
        assert_eq!(path(Some("a-b.slice:docker:x")).unwrap(), "/a.slice/a-b.slice/docker-x.scope");
        assert_eq!(path(Some("-.slice::x")).unwrap(), "/x.scope");
        assert_eq!(path(Some(":p:y.slice")).unwrap(), "/system.slice/y.slice");
        assert!(path(Some("/docker/x")).unwrap_err().to_string().contains("slice:prefix:name"));
        assert!(path(Some("a--b.slice:p:x")).is_err() && path(Some("a:p:x")).is_err());
    }

    #[test]
    fn limits_become_properties() {
        let resources = serde_json::from_value(json!({
            "memory": { "limit": 1000, "swap": 1500, "reservation": 10 },
            "cpu": { "shares": 1024, "quota": 12345, "period": 50000 },
            "pids": { "limit": 20 },
        }))
        .unwrap();
        let get = |v2| -> Vec<String> {
            properties(&resources, v2)
                .unwrap()
                .into_iter()
                .map(|(name, _, value)| format!("{name}={value}"))
                .collect()
        };
        let v2 = "MemoryMax=1000 MemorySwapMax=500 MemoryLow=10 CPUWeight=39 CPUQuotaPeriodUSec=50000 \
                  CPUQuotaPerSecUSec=250000 TasksMax=104";
        assert_eq!(get(true).join(" "), v2);
        let v1 =
            "MemoryLimit=1000 CPUShares=1024 CPUQuotaPeriodUSec=50000 CPUQuotaPerSecUSec=250000 TasksMax=104";
        assert_eq!(get(false).join(" "), v1);
        assert_eq!(per_second(-1, 0), u64::MAX);
    }

    /// A program that writes its arguments down stands for systemd.
    #[test]
    fn what_systemd_is_told() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("ringfence-busctl-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (program, log) = (dir.join("busctl"), dir.join("log"));
        let script = format!(
            "#!/bin/sh\nfor a in \"$@\"; do printf '<%s>' \"$a\"; done >> {0}\necho >> {0}\n\
             case \"$*\" in *get-property*) echo 's \"/user.slice/me\"';;\n*StopUnit*) echo 'Unit x not loaded.' >&2; exit 1;;\n\
             *fails*) echo 'Access denied' >&2; exit 1;; esac\n",
            log.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let unit = Unit::parse(Some("a.slice:p:x"), "x", true).unwrap().with_program(&program);
        assert_eq!(unit.path().unwrap(), Path::new("/user.slice/me/a.slice/p-x.scope"));
        unit.start(7, true).unwrap();
        let limit = serde_json::from_value(json!({ "memory": { "limit": 5 } })).unwrap();
        unit.set(&limit, true).unwrap();
        unit.stop().unwrap();
        let told = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].starts_with("<--user><--quiet><--><get-property>"));
        let started = "<StartTransientUnit><ssa(sv)a(sa(sv))><p-x.scope><replace><9><Description><s><container p-x.scope>";
        assert!(lines[1].contains(started), "{told}");
        assert!(lines[1].ends_with("<Slice><s><a.slice><Delegate><b><true><PIDs><au><1><7><0>"), "{told}");
        assert!(
            lines[2].ends_with("<SetUnitProperties><sba(sv)><p-x.scope><true><1><MemoryMax><t><5>"),
            "{told}"
        );
        assert!(lines[3].contains("<StopUnit><ss><p-x.scope><replace>"));
        let fails = Unit::parse(Some("a.slice:p:fails"), "x", false).unwrap().with_program(&program);
        let error = fails.start(7, true).unwrap_err().to_string();
        assert_eq!(error, "systemd: StartTransientUnit p-fails.scope: Access denied");
        let absent = unit.with_program(Path::new("/nonexistent/busctl"));
        assert!(absent.stop().unwrap_err().to_string().contains("cgroupfs driver"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
