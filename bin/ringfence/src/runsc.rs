//! Global flags of runsc that Ringfence does not implement. A flag is accepted with a warning where it has nothing to
//! change here, and refused with the reason otherwise. docs/commands.md lists them.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::ErrorKind};

/// What becomes of a flag.
enum Fate {
    /// There is nothing here that it could change.
    WithoutEffect,
    /// It would change what a container may do or reach.
    Refused,
}

use Fate::{Refused, WithoutEffect};

/// One flag.
struct Flag {
    name: &'static str,
    /// `None`: it is true or false, and true without a value.
    value: Option<&'static str>,
    /// The value that asks for what is the case here anyway: nothing is said about it.
    fits: &'static str,
    fate: Fate,
    why: &'static str,
}

/// All of them.
const FLAGS: [Flag; 10] = [
    Flag {
        name: "allow-flag-override",
        value: None,
        fits: "false",
        fate: WithoutEffect,
        why: "no annotation of a container changes a global flag",
    },
    Flag {
        name: "allow-suid",
        value: None,
        fits: "true",
        fate: Refused,
        why: "set-user-ID and set-group-ID bits always count, as on Linux; mount with nosuid, or set process.noNewPrivileges",
    },
    Flag {
        name: "character-device-policy",
        value: Some("POLICY"),
        fits: "",
        fate: Refused,
        why: "no device of the host is handed to a container; the kernel inside has its own",
    },
    Flag {
        name: "dcache",
        value: Some("N"),
        fits: "-1",
        fate: WithoutEffect,
        why: "the caches of names and of descriptors have bounds of their own",
    },
    Flag {
        name: "gso",
        value: None,
        fits: "true",
        fate: WithoutEffect,
        why: "large segments go to the host as they are, which cuts them for interfaces that do not",
    },
    Flag {
        name: "qdisc",
        value: Some("NAME"),
        fits: "none",
        fate: WithoutEffect,
        why: "packets go to the host at once, whose own queueing discipline orders them",
    },
    Flag {
        name: "reproduce-nat",
        value: None,
        fits: "false",
        fate: Refused,
        why: "the rules of the host's network namespace are not copied; make them inside, with iptables or nft",
    },
    Flag {
        name: "reproduce-nftables",
        value: None,
        fits: "false",
        fate: Refused,
        why: "the rules of the host's network namespace are not copied; make them inside, with iptables or nft",
    },
    Flag {
        name: "strace-log-size",
        value: Some("BYTES"),
        fits: "",
        fate: WithoutEffect,
        why: "--strace shows numbers and paths, no data of which there could be more",
    },
    Flag {
        name: "watchdog-action",
        value: Some("ACTION"),
        fits: "",
        fate: WithoutEffect,
        why: "there is no watchdog",
    },
];

/// Those that were given and have no effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Without(Vec<&'static str>);

impl Without {
    /// A line for each.
    pub(crate) fn warn(&self) {
        for flag in FLAGS.iter().filter(|flag| self.0.contains(&flag.name)) {
            log::warn!("--{} is without effect: {}", flag.name, flag.why);
        }
    }
}

impl FromArgMatches for Without {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut without = Vec::new();
        for flag in &FLAGS {
            let given = matches.value_source(flag.name) == Some(ValueSource::CommandLine);
            let value = matches.get_one::<String>(flag.name).map_or("", String::as_str);
            if !given || value == flag.fits {
                continue;
            }
            if flag.value.is_none() && !matches!(value, "true" | "false") {
                let text = format!("--{} {value:?}: use true or false", flag.name);
                return Err(clap::Error::raw(ErrorKind::InvalidValue, text));
            }
            match flag.fate {
                WithoutEffect => without.push(flag.name),
                Refused => {
                    let text = format!("--{}={value} is not supported: {}", flag.name, flag.why);
                    return Err(clap::Error::raw(ErrorKind::InvalidValue, text));
                }
            }
        }
        Ok(Self(without))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Without {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, flag| {
            let arg = Arg::new(flag.name).long(flag.name).action(ArgAction::Set).hide(true).help(flag.why);
            command.arg(match flag.value {
                Some(name) => arg.value_name(name).allow_hyphen_values(true),
                None => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Commands of runsc that are not here, and what there is instead.
const COMMANDS: [(&str, &str); 7] = [
    ("tar", "use overlay export, which packs what a container has changed in its root"),
    ("read-control", "use events --stats, or the files of the container's control group on the host"),
    ("write-control", "use update"),
    ("statefile", "use checkpoint and restore"),
    ("symbolize", "symbols are in a file beside the program, ringfence.debug, which gdb reads"),
    ("mitigate", "the host decides about mitigations: /sys/devices/system/cpu/smt/control"),
    ("nvproxy", "a container has no access to a GPU"),
];

/// What to do without a command of runsc.
pub(crate) fn why_no_command(name: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn flags_have_a_fate() {
        let parse = |flag: &str| Cli::try_parse_from(["ringfence", flag, "list"]);
        assert_eq!(parse("--dcache=100").unwrap().global.without.0, ["dcache"]);
        for flag in ["--dcache=-1", "--reproduce-nat=false", "--gso", "--qdisc=none"] {
            assert!(parse(flag).unwrap().global.without.0.is_empty(), "{flag}");
        }
        let error = parse("--reproduce-nat").unwrap_err().to_string();
        assert!(error.contains("--reproduce-nat=true is not supported: the rules"), "{error}");
        assert!(parse("--gso=perhaps").is_err());
    }
}
