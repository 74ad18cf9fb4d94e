//! Parameters of a mount: the layers and the options. Pure.

use abi::{Errno, Result};
use mounts::fs_parameters::{Parameter, ParameterSpec, Takes, Value};

/// Most lower layers (OVL_MAX_STACK).
pub(crate) const MAX_LOWER: usize = 500;

const ONLY_OFF: Takes = Takes::Word(&["off"]);

/// The parameters that fsconfig(2) and mount(2) may set. What is not supported can only be switched off.
pub const KNOWN: &[ParameterSpec] = &[
    ("lowerdir", Takes::Text),
    ("lowerdir+", Takes::Text),
    ("datadir+", Takes::Text),
    ("upperdir", Takes::Text),
    ("workdir", Takes::Text),
    ("default_permissions", Takes::Flag),
    ("redirect_dir", Takes::Word(&["off", "nofollow"])),
    ("index", ONLY_OFF),
    ("uuid", Takes::Word(&["off", "null", "auto"])),
    ("nfs_export", ONLY_OFF),
    ("userxattr", Takes::Flag),
    ("xino", Takes::Word(&["off", "auto"])),
    ("metacopy", ONLY_OFF),
    ("verity", ONLY_OFF),
    ("volatile", Takes::Flag),
    ("override_creds", Takes::Flag),
];

/// What is to be mounted.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Paths of the lower layers, topmost first.
    pub lower: Vec<Vec<u8>>,
    /// Paths of layers that only have data for others.
    pub data: Vec<Vec<u8>>,
    pub upper: Option<Vec<u8>>,
    pub work: Option<Vec<u8>>,
    pub userxattr: bool,
    pub volatile: bool,
    default_permissions: bool,
    nofollow: bool,
    uuid: Option<String>,
    /// `lowerdir` as it was given; `None` where layers were given one by one.
    lowerdir: Option<Vec<u8>>,
}

impl Config {
    /// EINVAL.
    pub fn parse(parameters: &[Parameter]) -> Result<Config> {
        let mut c = Config::default();
        let mut redirect_off = false;
        for (name, value) in parameters {
            let text = if let Value::String(s) = value { s.as_slice() } else { b"" };
            match &name[..] {
                b"lowerdir" => c.set_lower(text)?,
                b"lowerdir+" => {
                    if text.is_empty() || !c.data.is_empty() {
                        return Err(Errno::EINVAL);
                    }
                    c.lowerdir = None;
                    c.lower.push(text.to_vec());
                }
                b"datadir+" => {
                    if text.is_empty() || c.lower.is_empty() {
                        return Err(Errno::EINVAL);
                    }
                    c.lowerdir = None;
                    c.data.push(text.to_vec());
                }
                b"upperdir" => c.upper = Some(text.to_vec()),
                b"workdir" => c.work = Some(text.to_vec()),
                b"userxattr" => c.userxattr = true,
                b"volatile" => c.volatile = true,
                b"default_permissions" => c.default_permissions = true,
                b"redirect_dir" => {
                    c.nofollow = text == b"nofollow";
                    redirect_off = !c.nofollow;
                }
                b"uuid" => c.uuid = Some(String::from_utf8_lossy(text).into_owned()),
                _ => {}
            }
        }
        let few = c.upper.is_none() && c.lower.len() + c.data.len() < 2;
        let many = c.lower.len() + c.data.len() > MAX_LOWER;
        let workless = c.upper.is_some() && c.work.is_none();
        if c.lower.is_empty() || few || many || workless || c.userxattr && redirect_off {
            return Err(Errno::EINVAL);
        }
        Ok(c)
    }

    /// `A:B::D`: lower layers, and behind two colons those for data.
    fn set_lower(&mut self, text: &[u8]) -> Result<()> {
        self.lower.clear();
        self.data.clear();
        self.lowerdir = Some(text.to_vec());
        if text.is_empty() {
            return Ok(());
        }
        let mut parts = vec![Vec::new()];
        let mut bytes = text.iter();
        while let Some(&b) = bytes.next() {
            match b {
                b':' => parts.push(Vec::new()),
                _ => {
                    let b = if b == b'\\' { *bytes.next().unwrap_or(&b) } else { b };
                    parts.last_mut().ok_or(Errno::EINVAL)?.push(b);
                }
            }
        }
        let mut data = false;
        let mut gap = true;
        for part in parts {
            if part.is_empty() {
                // Neither first, nor last, nor three colons.
                if gap {
                    return Err(Errno::EINVAL);
                }
                (data, gap) = (true, true);
                continue;
            }
            match (data, gap) {
                (true, false) => return Err(Errno::EINVAL),
                (true, true) => self.data.push(part),
                (false, _) => self.lower.push(part),
            }
            gap = false;
        }
        if gap { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// As /proc/mounts shows it. `fixed`: there is no upper layer.
    pub fn shown(&self) -> String {
        let mut words = Vec::new();
        match &self.lowerdir {
            Some(text) => words.push(format!("lowerdir={}", escape(text))),
            None => {
                words.extend(self.lower.iter().map(|l| format!("lowerdir+={}", escape(l))));
                words.extend(self.data.iter().map(|l| format!("datadir+={}", escape(l))));
            }
        }
        if let (Some(upper), Some(work)) = (&self.upper, &self.work) {
            words.push(format!("upperdir={}", escape(upper)));
            words.push(format!("workdir={}", escape(work)));
        }
        if self.default_permissions {
            words.push("default_permissions".into());
        }
        if self.nofollow {
            words.push("redirect_dir=nofollow".into());
        }
        if let Some(uuid) = self.uuid.as_ref().filter(|u| *u != "auto") {
            words.push(format!("uuid={uuid}"));
        }
        if self.volatile {
            words.push("volatile".into());
        }
        if self.userxattr {
            words.push("userxattr".into());
        }
        words.join(",")
    }
}

/// What would split the line or the words of /proc/mounts, in octal.
fn escape(text: &[u8]) -> String {
    let mut out = Vec::new();
    for &b in text {
        match b {
            b' ' | b'\t' | b'\n' | b'\\' | b',' => out.extend(format!("\\{b:03o}").bytes()),
            _ => out.push(b),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A path of `upperdir` or `workdir` without its escapes.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.iter();
    while let Some(&b) = bytes.next() {
        out.push(if b == b'\\' { *bytes.next().unwrap_or(&b) } else { b });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(all: &[(&str, &str)]) -> Result<Config> {
        let all: Vec<Parameter> =
            all.iter().map(|(k, v)| (k.as_bytes().to_vec(), Value::String(v.as_bytes().to_vec()))).collect();
        Config::parse(&all)
    }

    #[test]
    fn layers() {
        let lower = |text: &str| parse(&[("lowerdir", text)]).map(|c| (c.lower.len(), c.data.len()));
        assert_eq!(lower("a:b"), Ok((2, 0)));
        assert_eq!(lower("a::b"), Ok((1, 1)));
        assert_eq!(lower("a::b::c"), Ok((1, 2)));
        for bad in ["a", "", ":a", "a:", "a:b:", "a:::b", "a::b:c", "::a"] {
            assert_eq!(lower(bad), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(parse(&[("lowerdir", r"a\:b:c\\d:e\,f")]).unwrap().lower, [&b"a:b"[..], b"c\\d", b"e,f"]);
        let many = vec!["x"; MAX_LOWER + 1].join(":");
        assert_eq!(lower(&many), Err(Errno::EINVAL));
        assert_eq!(parse(&[("lowerdir+", "a:b"), ("lowerdir+", "c")]).unwrap().lower, [&b"a:b"[..], b"c"]);
    }

    #[test]
    fn shown_as_given() {
        let all = [("lowerdir", r"a\:b"), ("upperdir", "u"), ("workdir", "w"), ("userxattr", "")];
        assert_eq!(parse(&all).unwrap().shown(), r"lowerdir=a\134:b,upperdir=u,workdir=w,userxattr");
        assert_eq!(parse(&all[..2]), Err(Errno::EINVAL));
        assert_eq!(parse(&[("upperdir", "u"), ("workdir", "w")]), Err(Errno::EINVAL));
    }
}
