//! Checking a log.

use crate::key::PublicKey;
use crate::line::{End, Line, Start, signed_text, unhex};
use serde_json::value::Value;
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::{self, BufRead, Read};

/// A log that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it is about.
    pub start: Start,
    /// Its lines, the first and the last included.
    pub lines: u64,
    /// How many of them are decisions.
    pub decisions: u64,
    /// How many decisions it could not take, as lines say that have no decision.
    pub missing: u64,
    /// How often its writer was started again.
    pub resumed: u64,
    /// The signature at its end.
    pub signature: Signature,
}

/// The signature at the end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// There is none.
    Missing,
    /// By this key, it says; not checked.
    Unchecked(String),
    /// By the key that was given.
    Good(String),
}

/// What is wrong with a log.
#[derive(Debug)]
pub enum Fault {
    /// It cannot be read.
    Unreadable(io::Error),
    /// A line that no writer writes.
    Malformed {
        /// Which, from 1 on.
        line: u64,
        /// Why.
        why: String,
    },
    /// A line whose number is not the next one.
    Number {
        /// Which, from 1 on.
        line: u64,
        /// The number in it.
        number: u64,
    },
    /// A line that was not written behind the one before it.
    Chain {
        /// Which, from 1 on.
        line: u64,
    },
    /// A line behind the end.
    BehindEnd {
        /// Which, from 1 on.
        line: u64,
    },
    /// The last line is not an end.
    CutOff {
        /// How many lines there are.
        lines: u64,
    },
    /// The signature is not what the key gives.
    BadSignature {
        /// The line of the end.
        line: u64,
    },
    /// Another key has signed.
    OtherKey {
        /// That key.
        signed_by: String,
        /// The key that was given.
        given: String,
    },
    /// A key was given, and nothing is signed.
    Unsigned,
    /// Resuming a log that has its end.
    Ended,
}

impl Fault {
    /// The first line that is wrong, from 1 on.
    pub fn line(&self) -> Option<u64> {
        match self {
            Fault::Malformed { line, .. }
            | Fault::Number { line, .. }
            | Fault::Chain { line }
            | Fault::BehindEnd { line }
            | Fault::BadSignature { line } => Some(*line),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unreadable(error) => write!(f, "the log cannot be read: {error}"),
            Fault::Malformed { line, why } => write!(f, "line {line} is no line of a decision log: {why}"),
            Fault::Number { line, number } => write!(
                f,
                "line {line} has the number {number} instead of {}: a line was removed, added or moved",
                line - 1
            ),
            Fault::Chain { line } => write!(
                f,
                "line {line} was not written behind line {}: one of the two was changed or put in its place",
                line - 1
            ),
            Fault::BehindEnd { line } => write!(f, "line {line} was added behind the end of the log"),
            Fault::CutOff { lines } => write!(
                f,
                "the log has no end behind its {lines} lines: it was cut off, or its writer still runs or was killed"
            ),
            Fault::BadSignature { line } => {
                write!(f, "line {line}: the signature is wrong: the log was changed or made anew")
            }
            Fault::OtherKey { signed_by, given } => {
                write!(f, "the log is signed by the key {signed_by}, not by the given key {given}")
            }
            Fault::Unsigned => f.write_str("the log is not signed, so that the given key shows nothing"),
            Fault::Ended => f.write_str("the log has its end already: begin another"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Unreadable(error)
    }
}

/// Where a log goes on that has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    pub(crate) lines: u64,
    pub(crate) previous: [u8; 32],
    pub(crate) incomplete: bool,
    pub(crate) newline_missing: bool,
}

impl Tail {
    /// Checks a log that has no end, for [`crate::Writer::resume`].
    pub fn read(log: impl BufRead) -> Result<Tail, Fault> {
        let scan = Scan::run(log, true)?;
        if scan.end.is_some() {
            return Err(Fault::Ended);
        }
        let Scan { lines, previous, newline_missing, .. } = scan;
        Ok(Tail { lines, previous, incomplete: scan.incomplete.is_some(), newline_missing })
    }
}

/// Checks a log, and its signature if there is a key.
pub fn verify(log: impl BufRead, key: Option<&PublicKey>) -> Result<Report, Fault> {
    let scan = Scan::run(log, false)?;
    let (Some(start), Some((end, previous))) = (scan.start, scan.end) else {
        return Err(Fault::CutOff { lines: scan.lines });
    };
    let line = scan.lines;
    let signature = match (end.signature, key) {
        (None, Some(_)) => return Err(Fault::Unsigned),
        (None, None) => Signature::Missing,
        (Some(signed), None) => Signature::Unchecked(signed.key),
        (Some(signed), Some(key)) => {
            let given = key.id();
            if signed.key != given {
                return Err(Fault::OtherKey { signed_by: signed.key, given });
            }
            let text = signed_text(line - 1, end.time_ns, &previous);
            let good =
                unhex(&signed.ed25519).is_some_and(|signature| key.checks(text.as_bytes(), &signature));
            if !good {
                return Err(Fault::BadSignature { line });
            }
            Signature::Good(given)
        }
    };
    Ok(Report {
        start,
        lines: line,
        decisions: scan.decisions,
        missing: scan.missing,
        resumed: scan.resumed,
        signature,
    })
}

/// What was read so far.
#[derive(Default)]
struct Scan {
    start: Option<Start>,
    lines: u64,
    decisions: u64,
    missing: u64,
    resumed: u64,
    /// Digest of the last line.
    previous: [u8; 32],
    /// Why the last line is none, which only a resumed writer explains.
    incomplete: Option<String>,
    newline_missing: bool,
    /// The end, and the digest of the line before it.
    end: Option<(End, [u8; 32])>,
}

impl Scan {
    /// Reads all lines. With `open`, the last may be a part of one.
    fn run(mut log: impl BufRead, open: bool) -> Result<Scan, Fault> {
        let mut scan = Scan::default();
        let mut text = Vec::new();
        loop {
            text.clear();
            let most = crate::LINE_MAX as u64 + 1;
            if log.by_ref().take(most).read_until(b'\n', &mut text)? == 0 {
                break;
            }
            scan.newline_missing = text.pop_if(|last| *last == b'\n').is_none();
            if text.len() > crate::LINE_MAX {
                return scan.malformed("it is too long");
            }
            scan.line(&text)?;
        }
        if scan.lines == 0 {
            return Err(Fault::Malformed { line: 1, why: "the log is empty".into() });
        }
        if !open {
            if let Some(why) = scan.incomplete {
                return Err(Fault::Malformed { line: scan.lines, why });
            }
            if scan.newline_missing && scan.end.is_some() {
                return Err(Fault::Malformed { line: scan.lines, why: "its newline is missing".into() });
            }
        }
        Ok(scan)
    }

    fn malformed<T>(&self, why: impl Into<String>) -> Result<T, Fault> {
        Err(Fault::Malformed { line: self.lines + 1, why: why.into() })
    }

    fn line(&mut self, text: &[u8]) -> Result<(), Fault> {
        let at = self.lines + 1;
        if self.end.is_some() {
            return Err(Fault::BehindEnd { line: at });
        }
        let line = match serde_json::from_slice::<Line<Value>>(text) {
            Ok(line) => line,
            // It may be the rest of a writer that was killed; the next line says so.
            Err(error) if self.incomplete.is_none() && self.lines > 0 => {
                self.incomplete = Some(error.to_string());
                self.step(text);
                return Ok(());
            }
            Err(error) => {
                let line = if self.incomplete.is_some() { at - 1 } else { at };
                return Err(Fault::Malformed { line, why: error.to_string() });
            }
        };
        if let Some(why) = self.incomplete.take()
            && !line.resumed.as_ref().is_some_and(|resumed| resumed.incomplete)
        {
            return Err(Fault::Malformed { line: at - 1, why });
        }
        if line.number != self.lines {
            return Err(Fault::Number { line: at, number: line.number });
        }
        if unhex(&line.previous) != Some(self.previous) {
            return match self.lines {
                0 => self.malformed("the first line follows no other"),
                _ => Err(Fault::Chain { line: at }),
            };
        }
        // A change that means the same is a change, too.
        if serde_json::to_vec(&line).ok().as_deref() != Some(text) && line.decision.is_none() {
            return self.malformed("it is not in the form in which it is written");
        }
        match (&line.start, &line.decision, &line.resumed, &line.end) {
            (Some(start), None, None, None) if self.lines == 0 && start.version == 1 => {
                self.start = Some(start.clone())
            }
            (Some(start), None, None, None) if self.lines == 0 => {
                return self.malformed(format!("version {} of the log's form is not known", start.version));
            }
            _ if self.lines == 0 => return self.malformed("the first line is no start"),
            (None, Some(decision), None, None) => match decision.get("missing") {
                Some(missing) => {
                    self.missing = self.missing.saturating_add(missing.as_u64().unwrap_or(1));
                }
                None => self.decisions += 1,
            },
            (None, None, Some(_), None) => self.resumed += 1,
            (None, None, None, Some(end)) => self.end = Some((end.clone(), self.previous)),
            _ => return self.malformed("it has none of decision, resumed and end, or several"),
        }
        self.step(text);
        Ok(())
    }

    fn step(&mut self, text: &[u8]) {
        self.lines += 1;
        self.previous = Sha256::digest(text).into();
    }
}
