//! `-info`: the abilities of the runtime; containerd 2 asks for them when it starts.

use crate::options::Settings;
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::types::introspection::{RuntimeInfo, RuntimeVersion};
use std::io::{self, IsTerminal, Read, Write};
use std::process::{Command, Stdio};

/// containerd's name for the document that `ringfence features` writes.
const FEATURES: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

/// Answers on standard output; the options are on standard input.
pub(crate) fn tell() -> Result<(), String> {
    let mut bytes = Vec::new();
    if !io::stdin().is_terminal() {
        io::stdin()
            .lock()
            .take(1 << 20)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("options: {error}"))?;
    }
    let options = Any::parse_from_bytes(&bytes).map_err(|error| format!("options: {error}"))?;
    let settings = Settings::from_any(Some(&options))?;
    let binary = settings.binary()?;
    let features = Command::new(&binary).arg("features").stdin(Stdio::null()).output();
    let features = features.map_err(|error| format!("{}: {error}", binary.display()))?;
    if !features.status.success() {
        return Err(String::from_utf8_lossy(&features.stderr).trim().to_string());
    }
    let answer = info(features.stdout).write_to_bytes().map_err(|error| error.to_string())?;
    io::stdout().write_all(&answer).map_err(|error| error.to_string())
}

fn info(features: Vec<u8>) -> RuntimeInfo {
    let version = RuntimeVersion { version: env!("CARGO_PKG_VERSION").into(), ..Default::default() };
    let features = Any { type_url: FEATURES.into(), value: features, ..Any::default() };
    RuntimeInfo {
        name: crate::RUNTIME.into(),
        version: Some(version).into(),
        features: Some(features).into(),
        ..RuntimeInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_packed() {
        let told = info(b"{}".to_vec());
        assert_eq!(
            (told.name.as_str(), told.features.value.as_slice()),
            ("io.containerd.ringfence.v1", &b"{}"[..])
        );
    }
}
