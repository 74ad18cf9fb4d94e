//! Inputs on disk.

use std::fs;
use std::path::PathBuf;

/// A folder of this package.
fn folder(kind: &str, target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(kind).join(target)
}

/// Corpus and regressions of a target.
pub(crate) fn of(target: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut inputs = Vec::new();
    for kind in ["corpus", "regressions"] {
        let Ok(entries) = fs::read_dir(folder(kind, target)) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            inputs.push(fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?);
        }
    }
    Ok(inputs)
}

/// Keeps an input that was a mistake; where.
pub(crate) fn keep(target: &str, input: &[u8]) -> PathBuf {
    let dir = folder("regressions", target);
    // The same input has the same name.
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let path = dir.join(format!("{hash:016x}"));
    if let Err(error) = fs::create_dir_all(&dir).and_then(|()| fs::write(&path, input)) {
        eprintln!("fuzz: {}: {error}", path.display());
    }
    path
}
