//! The command line, as containerd writes it: flags of Go's form, then what to do.

use std::fmt;

/// What the command line says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) debug: bool,
    pub(crate) info: bool,
    pub(crate) version: bool,
    pub(crate) help: bool,
    /// containerd's namespace of the container.
    pub(crate) namespace: String,
    /// The container.
    pub(crate) id: String,
    /// Its bundle.
    pub(crate) bundle: String,
    /// containerd.
    pub(crate) address: String,
    /// Program that publishes events; not used, as events go over containerd's socket.
    pub(crate) publish_binary: String,
    /// Where to serve.
    pub(crate) socket: String,
    /// `start`, `delete`, or nothing to serve.
    pub(crate) action: String,
}

/// What is wrong with a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    Unknown(String),
    NoValue(String),
    NotBoolean(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "flag provided but not defined: -{name}"),
            Self::NoValue(name) => write!(f, "flag needs an argument: -{name}"),
            Self::NotBoolean(name) => write!(f, "flag -{name} takes true or false"),
        }
    }
}

/// Parses the arguments after the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Flags, Error> {
    let mut flags = Flags::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            flags.action = arg;
            break;
        };
        if flag.is_empty() {
            // A single dash is an argument, two end the flags.
            flags.action = if arg == "--" { args.next().unwrap_or_default() } else { arg };
            break;
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        if let Some(place) = flags.switch(name) {
            *place = match value {
                None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
                Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
                Some(_) => return Err(Error::NotBoolean(name.into())),
            };
        } else if let Some(place) = flags.text(name) {
            let value = value.map(String::from).or_else(|| args.next());
            *place = value.ok_or_else(|| Error::NoValue(name.into()))?;
        } else {
            return Err(Error::Unknown(name.into()));
        }
    }
    Ok(flags)
}

impl Flags {
    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "debug" => &mut self.debug,
            "info" => &mut self.info,
            "v" | "version" => &mut self.version,
            "h" | "help" => &mut self.help,
            _ => return None,
        })
    }

    fn text(&mut self, name: &str) -> Option<&mut String> {
        Some(match name {
            "namespace" => &mut self.namespace,
            "id" => &mut self.id,
            "bundle" => &mut self.bundle,
            "address" => &mut self.address,
            "publish-binary" => &mut self.publish_binary,
            "socket" => &mut self.socket,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Flags, Error> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn as_containerd_writes_it() {
        let flags = parse_words("-namespace k8s.io -address /c.sock -id x --bundle=/b -debug start").unwrap();
        assert_eq!((flags.namespace.as_str(), flags.id.as_str()), ("k8s.io", "x"));
        assert_eq!((flags.bundle.as_str(), flags.address.as_str()), ("/b", "/c.sock"));
        assert!(flags.debug && !flags.info);
        assert_eq!(flags.action, "start");
        assert_eq!(parse_words("-debug=false -- delete -id").unwrap().action, "delete");
        assert_eq!(parse_words("").unwrap(), Flags::default());
    }

    #[test]
    fn mistakes() {
        assert_eq!(
            parse_words("--nosuch x").unwrap_err().to_string(),
            "flag provided but not defined: -nosuch"
        );
        assert_eq!(parse_words("start -id").unwrap().action, "start");
        assert_eq!(parse_words("-id").unwrap_err(), Error::NoValue("id".into()));
        assert_eq!(parse_words("-debug=maybe").unwrap_err(), Error::NotBoolean("debug".into()));
    }
}
