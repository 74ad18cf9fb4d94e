//! The user and the environment of `do`.

use crate::mistakes::usage;
use lifecycle::Result;
use std::path::Path;

/// The user that a command runs as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// From `USER[:GROUP]`, names of `root`'s /etc/passwd and /etc/group or numbers. Without a group those of the user.
pub(crate) fn user(text: &str, root: &Path) -> Result<User> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    parse(text, &read("etc/passwd"), &read("etc/group"))
        .map_err(|what| usage(format!("--user {text:?}: {what}")))
}

fn parse(text: &str, passwd: &str, group: &str) -> std::result::Result<User, String> {
    let (user, wanted) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let find = |file: &str, key: &str| -> Option<Vec<String>> {
        let mut lines = file.lines().map(|line| line.split(':').map(str::to_string).collect::<Vec<_>>());
        let number = key.parse::<u32>().is_ok();
        lines.find(|fields| fields.get(if number { 2 } else { 0 }).is_some_and(|field| field == key))
    };
    let number = |fields: &[String], at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
    let entry = find(passwd, user);
    let uid = user.parse().ok().or_else(|| number(entry.as_ref()?, 2));
    let uid = uid.ok_or_else(|| format!("there is no user {user:?}"))?;
    let gid = match wanted {
        None => entry.as_ref().and_then(|fields| number(fields, 3)).unwrap_or(0),
        Some(name) => {
            let gid = name.parse().ok().or_else(|| number(&find(group, name)?, 2));
            gid.ok_or_else(|| format!("there is no group {name:?}"))?
        }
    };
    let name = entry.as_ref().and_then(|fields| fields.first()).filter(|_| wanted.is_none());
    let lists = |fields: &&str| {
        let members = fields.split(':').nth(3).unwrap_or_default();
        name.is_some_and(|name| members.split(',').any(|member| member == name))
    };
    let groups =
        group.lines().filter(lists).filter_map(|line| line.split(':').nth(2)?.parse().ok()).collect();
    Ok(User { uid, gid, groups })
}

/// The command's environment: the caller's, or none with `clear`; then what is asked for. A name alone is the caller's variable.
pub(crate) fn environment(clear: bool, asked: &[String]) -> Result<Vec<String>> {
    let mut all = if clear { Vec::new() } else { callers() };
    for text in asked {
        let name = text.split('=').next().unwrap_or_default();
        if name.is_empty() {
            return Err(usage(format!("--env {text:?}: use NAME=VALUE, or NAME for the caller's own")));
        }
        all.retain(|known| known.split('=').next() != Some(name));
        match text.contains('=') {
            true => all.push(text.clone()),
            false => all.extend(std::env::var(name).ok().map(|value| format!("{name}={value}"))),
        }
    }
    Ok(all)
}

/// The caller's environment, except for what is not text.
fn callers() -> Vec<String> {
    std::env::vars_os()
        .filter_map(|(name, value)| match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => Some(format!("{name}={value}")),
            (Ok(name), Err(_)) | (Err(_), Ok(name)) => {
                log::warn!("an environment variable that is not UTF-8 is left out (near {name:?})");
                None
            }
            (Err(_), Err(_)) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        let passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:100::/home/me:/bin/sh\n";
        let group = "root:x:0:\nusers:x:100:\naudio:x:29:you,me\n";
        let of = |text| parse(text, passwd, group);
        let user = |uid, gid, groups: &[u32]| Ok(User { uid, gid, groups: groups.to_vec() });
        assert_eq!(of("me"), user(1000, 100, &[29]));
        assert_eq!(of("1000"), user(1000, 100, &[29]));
        assert_eq!(of("me:audio"), user(1000, 29, &[]));
        assert_eq!(of("7:8"), user(7, 8, &[]));
        assert_eq!(of("7"), user(7, 0, &[]));
        assert!(of("nosuch").is_err() && of("me:nosuch").is_err() && of("").is_err());
    }

    #[test]
    fn variables() {
        let asked = ["A=1".to_string(), "B=".into(), "A=2".into(), "RINGFENCE_TEST_NOT_THERE".into()];
        assert_eq!(environment(true, &asked).unwrap(), ["B=", "A=2"]);
        assert!(environment(true, &["=x".into()]).is_err());
    }
}
