//! What an image says of the machine and the program that made it, and whether it can go on here.

use serde::{Deserialize, Serialize};

/// Where a sandbox runs: in an image, where it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Version of ringfence.
    pub version: String,
    /// Build ID of the sandbox's executable, a hash of it.
    pub build: String,
    /// Name of the platform.
    pub platform: String,
    /// SHA-256 of the vDSO, in hexadecimal digits. Programs hold addresses of its functions.
    pub vdso: String,
    /// Features of the processor that programs may have found, by the names of /proc/cpuinfo.
    pub features: Vec<String>,
    /// Components of the extended state (XCR0).
    pub components: u64,
    /// Bytes of the extended state.
    pub xstate: u64,
    /// Length of the file of pages in bytes.
    pub pages: u64,
    /// Those of the files of earlier images that it names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<u64>,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// The sandbox ended after it, and told hosts outside that their connections end.
    pub ends_connections: bool,
}

impl About {
    /// Why a sandbox of this image cannot go on where `here` says; `None` when it can.
    pub fn obstacle(&self, here: &About) -> Option<String> {
        if self.platform != here.platform {
            return Some(format!(
                "it was made on the platform {:?}, and this sandbox has {:?}: restore with --platform {}",
                cut(&self.platform),
                here.platform,
                cut(&self.platform)
            ));
        }
        if self.vdso != here.vdso {
            return Some(
                "the host's kernel has another vDSO than the one of the checkpoint: restore on a host with the same kernel"
                    .into(),
            );
        }
        let missing: Vec<&str> =
            self.features.iter().filter(|f| !here.features.contains(f)).map(|f| cut(f)).collect();
        if !missing.is_empty() {
            let some = missing.get(..missing.len().min(16)).unwrap_or_default().join(", ");
            return Some(format!("the processor lacks what that of the checkpoint has: {some}"));
        }
        if self.components & !here.components != 0 || self.xstate > here.xstate {
            return Some("the processor's extended state is smaller than that of the checkpoint".into());
        }
        None
    }
}

/// Of hostile text, as much as a message takes.
fn cut(text: &str) -> &str {
    text.get(..text.len().min(32)).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> About {
        let features = ["avx2", "sse4_2"].map(String::from).to_vec();
        let (platform, vdso) = ("systrap".into(), "ab".into());
        About { platform, vdso, features, components: 7, xstate: 832, ..About::default() }
    }

    #[test]
    fn what_is_missing_is_named() {
        let obstacle = |change: &dyn Fn(&mut About)| {
            let mut there = here();
            change(&mut there);
            there.obstacle(&here())
        };
        assert_eq!(obstacle(&|_| ()), None);
        assert_eq!(obstacle(&|a| drop(a.features.pop())), None);
        assert_eq!(obstacle(&|a| a.components = 3), None);
        let says = |what: &str, change: &dyn Fn(&mut About)| {
            let why = obstacle(change).unwrap_or_default();
            assert!(why.contains(what), "{why}");
        };
        says("avx512f", &|a| a.features.push("avx512f".into()));
        says("vDSO", &|a| a.vdso.push('c'));
        says("--platform ptrace", &|a| a.platform = "ptrace".into());
        says("extended state", &|a| a.components = 15);
        says("extended state", &|a| a.xstate = 2000);
        says("checkpoint has: ?", &|a| a.features.push(format!("x{}", "\u{e9}".repeat(20))));
    }
}
