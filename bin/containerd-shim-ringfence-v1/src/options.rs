//! The user's options: containerd's runtime options, and the configuration file that they may name.
//!
//! containerd sends `containerd.runc.v1.Options` (from `ctr --runc-binary` and from Docker), or
//! `runtimeoptions.v1.Options`, which names a file (`ctr --runtime-config-path`, the CRI's `ConfigPath`) or contains
//! it. Without either, [`DEFAULT_CONFIG`] is read if it exists. An unknown option is an error that names it.

use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{CodedInputStream, Message};
use containerd_shim_protos::shim::oci::{self, Options};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The configuration file that is read when containerd names none.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/containerd/ringfence.toml";
/// Below it every containerd namespace has a directory with the state of its containers.
const DEFAULT_ROOT: &str = "/run/containerd/ringfence";
/// What a shim knows of a container, for the one that cleans up after it.
pub(crate) const SAVED: &str = "ringfence-shim.json";

/// How a checkpoint is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointOptions {
    /// The container ends afterwards.
    pub(crate) exit: bool,
    /// Directory of the image.
    pub(crate) image: String,
}

impl CheckpointOptions {
    /// From what containerd sent, if it sent anything. An option that is not carried out is refused, unless what it asks for is
    /// so in any case.
    pub(crate) fn from_any(any: Option<&Any>) -> Result<Self, String> {
        let Some(any) = any.filter(|any| !any.type_url.is_empty()) else { return Ok(Self::default()) };
        if !any.type_url.ends_with("containerd.runc.v1.CheckpointOptions") {
            return Err(format!("checkpoint options of type {:?} are not supported", any.type_url));
        }
        let options = oci::CheckpointOptions::parse_from_bytes(&any.value)
            .map_err(|error| format!("checkpoint options: {error}"))?;
        if options.external_unix_sockets {
            return Err("checkpoint option ExternalUnixSockets is not supported".into());
        }
        if let Some(kind) = options.empty_namespaces.first() {
            return Err(format!("checkpoint option EmptyNamespaces={kind} is not supported"));
        }
        Ok(Self { exit: options.exit, image: options.image_path })
    }
}

/// How containers are run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// The ringfence program [default: the one beside the shim, or in PATH].
    pub(crate) binary_name: String,
    /// Directory for the state of containers, with one directory for each namespace.
    pub(crate) root: String,
    /// Control group for the shim itself.
    pub(crate) shim_cgroup: String,
    /// Owner of the standard streams.
    pub(crate) io_uid: u32,
    /// Group of the standard streams.
    pub(crate) io_gid: u32,
    /// systemd makes the control groups.
    pub(crate) systemd_cgroup: bool,
    /// Handed on; without effect.
    pub(crate) no_pivot_root: bool,
    /// Handed on; without effect.
    pub(crate) no_new_keyring: bool,
    /// Level of the shim's log: error, warn, info, debug or trace.
    pub(crate) log_level: String,
    /// Global flags of ringfence, without their dashes.
    pub(crate) ringfence_config: BTreeMap<String, Value>,
}

/// A flag's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// `true` or `false`.
    Switch(bool),
    /// A number.
    Number(i64),
    /// Everything else.
    Text(String),
}

impl Settings {
    /// From what containerd sent, if it sent anything.
    pub(crate) fn from_any(any: Option<&Any>) -> Result<Self, String> {
        let Some(any) = any.filter(|any| !any.type_url.is_empty()) else {
            return Self::from_default_file(DEFAULT_CONFIG);
        };
        match any.type_url.rsplit('/').next().unwrap_or_default() {
            "containerd.runc.v1.Options" => Self::from_runc(&any.value),
            "runtimeoptions.v1.Options" | "cri.runtimeoptions.v1.Options" => {
                Self::from_runtime_options(&any.value)
            }
            other => Err(format!("runtime options of type {other:?} are not supported")),
        }
    }

    fn from_runc(bytes: &[u8]) -> Result<Self, String> {
        let options =
            Options::parse_from_bytes(bytes).map_err(|error| format!("runtime options: {error}"))?;
        let refused = [
            ("CriuImagePath", &options.criu_image_path),
            ("CriuWorkPath", &options.criu_work_path),
            ("CriuPath", &options.criu_path),
        ];
        if let Some((name, _)) = refused.iter().find(|(_, value)| !value.is_empty()) {
            return Err(format!("runtime option {name} is not supported: checkpoints are made without CRIU"));
        }
        if let Some((number, _)) = options.special_fields.unknown_fields().iter().next() {
            return Err(format!(
                "runtime option number {number} of containerd.runc.v1.Options is not supported"
            ));
        }
        Ok(Self {
            binary_name: options.binary_name,
            root: options.root,
            shim_cgroup: options.shim_cgroup,
            io_uid: options.io_uid,
            io_gid: options.io_gid,
            systemd_cgroup: options.systemd_cgroup,
            no_pivot_root: options.no_pivot_root,
            no_new_keyring: options.no_new_keyring,
            ..Self::default()
        })
    }

    /// `{ string type_url = 1; string config_path = 2; bytes config_body = 3; }`
    fn from_runtime_options(bytes: &[u8]) -> Result<Self, String> {
        let (mut path, mut body) = (String::new(), Vec::new());
        let mut read = || {
            let mut input = CodedInputStream::from_bytes(bytes);
            while let Some(tag) = input.read_raw_tag_or_eof()? {
                match tag >> 3 {
                    1 => drop(input.read_string()?),
                    2 => path = input.read_string()?,
                    3 => body = input.read_bytes()?,
                    other => return Ok(Some(other)),
                }
            }
            Ok(None)
        };
        let read: Result<_, containerd_shim_protos::protobuf::Error> = read();
        match read {
            Ok(None) => {}
            Ok(Some(number)) => {
                return Err(format!(
                    "runtime option number {number} of runtimeoptions.v1.Options is not supported"
                ));
            }
            Err(error) => return Err(format!("runtime options: {error}")),
        }
        // Named by an example to copy, and no less optional for that.
        if path == DEFAULT_CONFIG {
            return Self::from_default_file(&path);
        }
        if !path.is_empty() {
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("ConfigPath {path}: {error}"))?;
            return Self::from_toml(&text, &path);
        }
        let text = String::from_utf8(body).map_err(|_| "ConfigBody is not text".to_string())?;
        Self::from_toml(&text, "ConfigBody")
    }

    /// The file that need not be there.
    fn from_default_file(path: &str) -> Result<Self, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_toml(&text, path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{path}: {error}")),
        }
    }

    fn from_toml(text: &str, whence: &str) -> Result<Self, String> {
        let settings: Self = toml::from_str(text).map_err(|error| format!("{whence}: {error}"))?;
        if !settings.log_level.is_empty() && settings.log_level.parse::<log::LevelFilter>().is_err() {
            return Err(format!(
                "{whence}: log_level {:?} is none of error, warn, info, debug and trace",
                settings.log_level
            ));
        }
        Ok(settings)
    }

    /// The settings of a container, as its shim left them.
    pub(crate) fn load(bundle: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(bundle.join(SAVED)).ok()?).ok()
    }

    /// Leaves them for [`load`](Self::load).
    pub(crate) fn save(&self, bundle: &Path) -> std::io::Result<()> {
        std::fs::write(bundle.join(SAVED), serde_json::to_vec(self)?)
    }

    /// The ringfence program.
    pub(crate) fn binary(&self) -> Result<PathBuf, String> {
        let beside = || {
            let path = std::env::current_exe().ok()?.with_file_name("ringfence");
            path.is_file().then_some(path)
        };
        let found = match self.binary_name.as_str() {
            "" => beside().or_else(|| in_path("ringfence")),
            name if name.contains('/') => Some(PathBuf::from(name)).filter(|path| path.is_file()),
            name => in_path(name),
        };
        found.ok_or_else(|| match self.binary_name.as_str() {
            "" => "ringfence is neither beside the shim nor in PATH; name it with BinaryName".into(),
            name => format!("BinaryName {name}: no such program"),
        })
    }

    /// Directory for the state of containers of a namespace.
    pub(crate) fn state_dir(&self, namespace: &str) -> PathBuf {
        let root = if self.root.is_empty() { DEFAULT_ROOT } else { &self.root };
        Path::new(root).join(namespace)
    }

    /// Global flags for ringfence.
    pub(crate) fn flags(&self) -> Vec<String> {
        let flag = |(name, value): (&String, &Value)| match value {
            Value::Switch(on) => format!("--{name}={on}"),
            Value::Number(number) => format!("--{name}={number}"),
            Value::Text(text) => format!("--{name}={text}"),
        };
        let mut flags: Vec<String> = self.ringfence_config.iter().map(flag).collect();
        if self.systemd_cgroup {
            flags.push("--systemd-cgroup".into());
        }
        flags
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(kind: &str, value: Vec<u8>) -> Any {
        Any { type_url: kind.into(), value, ..Any::default() }
    }

    fn runtime_options(number: u8, text: &str) -> Any {
        let mut value = vec![number << 3 | 2, u8::try_from(text.len()).unwrap()];
        value.extend(text.bytes());
        any("runtimeoptions.v1.Options", value)
    }

    #[test]
    fn runc_options_are_taken() {
        let options = Options {
            binary_name: "/x/ringfence".into(),
            root: "/run/r".into(),
            systemd_cgroup: true,
            io_uid: 7,
            ..Options::default()
        };
        let any = any("containerd.runc.v1.Options", options.write_to_bytes().unwrap());
        let settings = Settings::from_any(Some(&any)).unwrap();
        assert_eq!((settings.binary_name.as_str(), settings.io_uid), ("/x/ringfence", 7));
        assert_eq!(settings.state_dir("k8s.io"), Path::new("/run/r/k8s.io"));
        assert_eq!(settings.flags(), ["--systemd-cgroup"]);
    }

    #[test]
    fn the_usual_file_need_not_be_there() {
        assert!(Settings::from_default_file("/nonexistent/ringfence.toml").is_ok());
        if !Path::new(DEFAULT_CONFIG).exists() {
            assert!(Settings::from_any(Some(&runtime_options(2, DEFAULT_CONFIG))).is_ok());
        }
        let other = Settings::from_any(Some(&runtime_options(2, "/nonexistent/x.toml"))).unwrap_err();
        assert!(other.contains("/nonexistent/x.toml"), "{other}");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let criu = Options { criu_work_path: "/x".into(), ..Options::default() };
        let refused = |any: Any| Settings::from_any(Some(&any)).unwrap_err();
        assert!(
            refused(any("containerd.runc.v1.Options", criu.write_to_bytes().unwrap()))
                .contains("CriuWorkPath")
        );
        assert!(refused(any("containerd.runc.v1.Options", vec![0xf8, 0x01, 1])).contains("number 31"));
        assert!(refused(any("some.Options", Vec::new())).contains("some.Options"));
        assert!(refused(runtime_options(4, "x")).contains("number 4"));
        assert!(refused(runtime_options(2, "/nonexistent")).contains("/nonexistent"));
        assert!(refused(runtime_options(3, "colour = 1")).contains("colour"));
        assert!(refused(runtime_options(3, "log_level = \"loud\"")).contains("loud"));
        assert!(refused(runtime_options(3, "[ringfence_config]\nx = [1]")).contains("x = [1]"));
    }

    #[test]
    fn a_file_gives_flags() {
        let text =
            "log_level = \"debug\"\n[ringfence_config]\nplatform = \"ptrace\"\ndebug = true\nnumber = 3\n";
        let settings = Settings::from_any(Some(&runtime_options(3, text))).unwrap();
        assert_eq!(settings.log_level, "debug");
        assert_eq!(settings.flags(), ["--debug=true", "--number=3", "--platform=ptrace"]);
    }

    #[test]
    fn settings_outlive_the_shim() {
        let dir = std::env::temp_dir().join(format!("ringfence-shim-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let text = "root = \"/r\"\n[ringfence_config]\ndebug = true\n";
        let settings = Settings::from_toml(text, "here").unwrap();
        settings.save(&dir).unwrap();
        assert_eq!(Settings::load(&dir), Some(settings));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_missing_program_is_named() {
        let settings = Settings { binary_name: "no-such-program".into(), ..Settings::default() };
        assert!(settings.binary().unwrap_err().contains("no-such-program"));
    }
}
