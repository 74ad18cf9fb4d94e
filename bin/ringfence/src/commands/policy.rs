//! `ringfence policy`: checks files of policies, tests them, puts them in force and verifies logs of their decisions.

use super::policy_session::{self, Load, Named};
use crate::logs;
use crate::output::{say, write};
use clap::{Args, Subcommand};
use decision_log::{Key, PublicKey, Signature};
use lifecycle::{Error, Result, Settings};
use policy::{Decision, Diagnostic, Policy, RuleIndex, cases, cover, explain};
use sandbox::logging::one_line;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Exit status for a file with mistakes, a case that differs, a log that was changed.
const WRONG: u8 = 1;

#[derive(Debug, Args)]
pub(crate) struct PolicyCommand {
    #[command(subcommand)]
    command: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Explain every rule of a policy; exit status 1 and all mistakes, if there are any
    Check {
        /// The policy, in YAML or JSON
        file: PathBuf,
    },
    /// Compare what a policy decides with what is expected; exit status 1, if a case differs
    Test {
        /// The policy, in YAML or JSON
        file: PathBuf,
        /// Operations and the decisions that are expected, in YAML or JSON
        cases: PathBuf,
    },
    /// Put a policy in force in a running sandbox, instead of one that was loaded before
    Load(Load),
    /// Read the file of a loaded policy again; with a log, another one begins
    Reload(Named),
    /// End a loaded policy
    Unload(Named),
    /// Show the policies of a running sandbox and what they have decided
    Show {
        /// The container's name
        id: String,
    },
    /// Print the JSON schema of policies
    Schema,
    /// Check that a log of decisions is whole and unchanged; exit status 1, if it is not
    Verify {
        /// The log
        log: PathBuf,
        /// The public key in PEM that must have signed the log
        #[arg(long, value_name = "PUBLIC")]
        key: Option<PathBuf>,
    },
    /// Make an Ed25519 key that signs logs: KEY, and the public half in KEY.pub
    Keygen {
        /// The file for the private key, which must not exist
        key: PathBuf,
    },
}

pub(crate) fn policy(settings: &Settings, args: &PolicyCommand) -> Result<()> {
    match &args.command {
        What::Check { file } => check(file),
        What::Test { file, cases } => test(file, cases),
        What::Load(args) => policy_session::load(settings, args),
        What::Reload(args) => policy_session::reload(settings, args),
        What::Unload(args) => policy_session::unload(settings, args),
        What::Show { id } => policy_session::show(settings, id),
        What::Schema => write(policy::SCHEMA),
        What::Verify { log, key } => verify(log, key.as_deref()),
        What::Keygen { key } => keygen(key),
    }
}

fn wrong(message: impl Into<String>) -> Error {
    Error::with_status(WRONG, message)
}

fn in_file(file: &Path, why: impl std::fmt::Display) -> Error {
    format!("{}: {why}", file.display()).into()
}

/// Longest file that is read; the limits of what is in it are lower.
const MAX_FILE: u64 = 8 << 20;

/// The text of a file that may be anything.
pub(super) fn read_text(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let length = fs::File::open(file)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    match length as u64 > MAX_FILE {
        true => Err(std::io::Error::other("longer than 8 MiB")),
        false => Ok(text),
    }
}

fn text_of(file: &Path) -> Result<String> {
    read_text(file).map_err(|error| in_file(file, error))
}

/// The result, or all mistakes on standard error.
fn parsed<T>(file: &Path, result: std::result::Result<T, Vec<Diagnostic>>) -> Result<T> {
    result.map_err(|mistakes| {
        for Diagnostic { line, column, rule, message } in &mistakes {
            let rule = rule.as_ref().map(|rule| format!("{rule}: ")).unwrap_or_default();
            logs::complain(&format!("{}:{line}:{column}: {rule}{message}", file.display()));
        }
        let count = mistakes.len();
        wrong(format!("{}: {count} {}", file.display(), if count == 1 { "mistake" } else { "mistakes" }))
    })
}

fn load(file: &Path) -> Result<Policy> {
    parsed(file, Policy::parse(&text_of(file)?))
}

/// A rule in messages: number, name, line.
fn name_of(policy: &Policy, index: RuleIndex) -> String {
    let rule = &policy.rules()[usize::from(index)];
    let name = rule.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
    format!("rule {}{name} (line {})", index + 1, rule.line)
}

fn check(file: &Path) -> Result<()> {
    let policy = load(file)?;
    for (at, rule) in policy.rules().iter().enumerate() {
        say(one_line(&format!("{}: {}", name_of(&policy, at as RuleIndex), explain::rule(rule))))?;
    }
    say(format_args!(
        "default, for operations: {}",
        explain::action(policy.default_action(), policy.ask(None))
    ))?;
    if policy.is_dry_run() {
        say("dry run: what rules and default refuse is recorded and goes on")?;
    }
    for (rule, by) in cover::covered(&policy) {
        let by: Vec<_> = by.iter().map(|index| name_of(&policy, *index)).collect();
        log::warn!(
            "{}: {} never matches: {} matches before it",
            file.display(),
            name_of(&policy, rule),
            by.join(" or ")
        );
    }
    Ok(())
}

fn test(file: &Path, cases: &Path) -> Result<()> {
    let policy = load(file)?;
    let list = parsed(cases, cases::parse(&text_of(cases)?))?;
    let mut differ = 0;
    for case in &list {
        let outcome = case.run(&policy);
        let decided = decided(&policy, &outcome.decision);
        let line = match outcome.differs {
            None => format!("ok      {case}: {decided}"),
            Some(expected) => {
                differ += 1;
                format!("FAILED  {case}: {decided}; expected {expected}")
            }
        };
        say(one_line(&line))?;
    }
    match differ {
        0 => say(format_args!("{} cases as expected", list.len())),
        _ => Err(wrong(format!("{}: {differ} of {} cases differ", cases.display(), list.len()))),
    }
}

/// A decision and the rule that made it.
fn decided(policy: &Policy, decision: &Decision) -> String {
    let by = |rule: Option<RuleIndex>| match rule {
        Some(index) => name_of(policy, index),
        None => "the default".into(),
    };
    let mut text = format!("{} by {}", decision.action, by(decision.rule));
    if let Some(would) = decision.dry_run {
        text.push_str(&format!(", in a dry run {} by {}", would.action, by(would.rule)));
    }
    text
}

fn verify(log: &Path, key: Option<&Path>) -> Result<()> {
    let key = match key {
        Some(path) => Some(PublicKey::from_pem(&text_of(path)?).map_err(|why| in_file(path, why))?),
        None => None,
    };
    let file = File::open(log).map_err(|error| in_file(log, error))?;
    let report = decision_log::verify(BufReader::new(file), key.as_ref())
        .map_err(|fault| wrong(format!("{}: {fault}", log.display())))?;
    let decision_log::Report { start, lines, decisions, missing, resumed, signature } = report;
    let missing = match missing {
        0 => "none changed or missing".into(),
        count => {
            format!("none changed; {count} more could not be written, as lines say where they are missing")
        }
    };
    say(one_line(&format!("{}: {lines} lines, {decisions} decisions, {missing}", log.display())))?;
    say(one_line(&format!("sandbox {}, policy with SHA-256 {}", start.sandbox, start.policy_sha256)))?;
    if resumed > 0 {
        say(format_args!(
            "the writer was started again {resumed} times; what happened in between is not recorded"
        ))?;
    }
    match signature {
        Signature::Good(id) => say(format_args!("signed by the given key, {id}")),
        Signature::Unchecked(id) => {
            say(one_line(&format!("signed by the key {id}, it says; not checked: give --key PUBLIC")))
        }
        Signature::Missing => say("not signed: the whole log may have been made anew"),
    }
}

fn keygen(path: &Path) -> Result<()> {
    let mut seed = [0; 32];
    hostsys::fs::random(&mut seed);
    let key = Key::from_seed(&seed);
    let mut public = path.as_os_str().to_owned();
    public.push(".pub");
    let public = PathBuf::from(public);
    new_file(path, 0o600, &key.to_pem()?)?;
    let id = key.public().id();
    let written = key.public().to_pem().map_err(Error::from).and_then(|pem| new_file(&public, 0o644, &pem));
    if let Err(error) = written {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    say(format_args!("{} signs, {} verifies; the key is {id}", path.display(), public.display()))
}

fn new_file(path: &Path, mode: u32, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            in_file(path, "the file is there already: name another, or remove it")
        }
        _ => in_file(path, error),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = fs::remove_file(path);
        return Err(failed(error));
    }
    Ok(())
}
