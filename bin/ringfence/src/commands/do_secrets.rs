//! The files that `do` hides from a command by default: keys, tokens and histories of shells in the caller's home.
//! Files of the system, such as /etc/shadow, are not hidden: package managers inside change them.

use crate::mistakes::usage;
use bundle::Volume;
use lifecycle::Result;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Below the home directory.
const AT_HOME: [&str; 36] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/git/credentials",
    ".config/doctl",
    ".config/rclone",
    ".kube",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    ".password-store",
    ".local/share/keyrings",
    ".pgpass",
    ".my.cnf",
    ".bash_history",
    ".zsh_history",
    ".local/share/fish/fish_history",
    ".sh_history",
    ".python_history",
    ".node_repl_history",
    ".mysql_history",
    ".psql_history",
    ".sqlite_history",
    ".lesshst",
];

/// The paths that are hidden by default, for a caller with these home directories.
fn defaults(homes: &[PathBuf]) -> Vec<String> {
    let all = homes.iter().flat_map(|home| AT_HOME.iter().map(move |name| home.join(name)));
    all.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// The caller's home directories: those of the environment, of /etc/passwd, and of a user that has called sudo(8).
fn homes() -> Vec<PathBuf> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    let uids = [Some(rustix::process::getuid().as_raw()), sudo];
    let listed = uids.into_iter().flatten().filter_map(|uid| home_of(&passwd, uid));
    let mut all: Vec<PathBuf> =
        std::env::var_os("HOME").map(PathBuf::from).into_iter().chain(listed).collect();
    all.retain(|home| home.is_absolute() && home != Path::new("/"));
    all.sort();
    all.dedup();
    all
}

fn home_of(passwd: &str, uid: u32) -> Option<PathBuf> {
    let uid = uid.to_string();
    let mut fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.find(|fields| fields.get(2) == Some(&uid.as_str())).and_then(|fields| Some(fields.get(5)?.into()))
}

/// What is hidden: `asked`, and the defaults if the command sees the host's own files. A volume that is such a path itself is
/// shared on purpose; one below would be covered, which is an error.
pub(crate) fn hidden(asked: &[String], with_defaults: bool, volumes: &[Volume]) -> Result<Vec<String>> {
    if let Some(wrong) = asked.iter().find(|path| !path.starts_with('/')) {
        return Err(usage(format!("--hide {wrong:?} must be an absolute path")));
    }
    if let Some((path, error)) =
        asked.iter().find_map(|path| Some((path, Path::new(path).symlink_metadata().err()?)))
    {
        return Err(usage(format!("--hide {path}: {error}; there is nothing to hide")));
    }
    let mut all = asked.to_vec();
    if with_defaults {
        // What the caller cannot reach, the command cannot either.
        all.extend(defaults(&homes()).into_iter().filter(|path| Path::new(path).symlink_metadata().is_ok()));
    }
    all.retain(|path| !volumes.iter().any(|volume| volume.destination == *path));
    for path in &all {
        if let Some(volume) = volumes.iter().find(|volume| Path::new(&volume.destination).starts_with(path)) {
            return Err(usage(format!(
                "--volume {}: {path} is hidden and would cover it; share {path} itself, or use --no-hide",
                volume.destination
            )));
        }
    }
    Ok(all)
}

/// The same for a command that runs as none of the host's users that own these. It cannot enter a directory that others
/// may not search, so that directory is hidden as a whole.
pub(crate) fn hidden_from_others(paths: &[String]) -> Vec<String> {
    let closed = |dir: &&Path| {
        dir.metadata().is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & 0o001 == 0)
    };
    let shown = |path: &String| {
        let mut above: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
        above.reverse();
        above.into_iter().find(closed).map_or_else(|| path.clone(), |dir| dir.to_string_lossy().into_owned())
    };
    let mut all: Vec<String> = paths.iter().map(shown).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden() {
        let volume = |text: &str| vec![text.parse::<Volume>().unwrap()];
        assert!(defaults(&["/home/me".into()]).contains(&"/home/me/.ssh".to_string()));
        assert_eq!(hidden(&["/etc".into()], false, &[]).unwrap(), ["/etc"]);
        assert!(hidden(&["/etc".into()], false, &volume("/b:/etc")).unwrap().is_empty());
        assert!(hidden(&["/etc".into()], false, &volume("/b:/etc/c")).is_err());
        assert!(hidden(&["a".into()], false, &[]).is_err());
        assert!(hidden(&["/there/is/none".into()], false, &[]).is_err());
        assert_eq!(home_of("root:x:0:0::/root:/bin/sh\n", 0), Some("/root".into()));
        let dir = std::env::temp_dir().join(format!("ringfence-hidden-{}", std::process::id()));
        let path = dir.join("in").to_string_lossy().into_owned();
        std::fs::create_dir(&dir).unwrap();
        for (mode, wanted) in [(0o755, path.clone()), (0o700, dir.to_string_lossy().into_owned())] {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(hidden_from_others(&[path.clone(), path.clone()]), [wanted]);
        }
        std::fs::remove_dir(&dir).unwrap();
        assert_eq!(home_of("bad\n", 0), None);
    }
}
