//! Lines of a log.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a log is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Version of the log's form: 1.
    pub version: u32,
    /// The sandbox's name.
    pub sandbox: String,
    /// SHA-256 of the policy's file.
    pub policy_sha256: String,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
}

impl Start {
    /// A start for the policy in this file.
    pub fn new(sandbox: &str, policy: &[u8], time_ns: u64) -> Start {
        let policy_sha256 = hex(&Sha256::digest(policy));
        Start { version: 1, sandbox: sandbox.to_owned(), policy_sha256, time_ns }
    }
}

/// A decision. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The container's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// Process ID, as the container sees it.
    pub pid: i32,
    /// Thread ID, as the container sees it.
    pub tid: i32,
    /// Effective user ID, as the container sees it.
    pub uid: u32,
    /// Effective group ID, as the container sees it.
    pub gid: u32,
    /// The point, as rules name it.
    pub point: String,
    /// The system call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Path of the process's program; see [`text_of`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// Path of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The new path of a link or rename.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_path: Option<String>,
    /// The address, as rules write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What was done.
    pub action: String,
    /// The error number of `deny`, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// Number of the rule in the policy, from 1 on; nothing for its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// The rule's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_name: Option<String>,
    /// What a rule that only tries would have done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRun>,
    /// What a program that was asked said, or why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// How many decisions were made before this line that the log could not take. Such a line has nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u64>,
}

/// A decision that was not acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRun {
    /// What would have been done.
    pub action: String,
    /// Number of the rule, from 1 on; nothing for the policy's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
}

/// The writer was started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resumed {
    pub(crate) time_ns: u64,
    /// The line before is only a part of one.
    pub(crate) incomplete: bool,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    pub(crate) time_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<Signed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signed {
    /// [`crate::PublicKey::id`]
    pub(crate) key: String,
    /// In hexadecimal digits.
    pub(crate) ed25519: String,
}

/// A line: one of the last four is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line<D> {
    pub(crate) number: u64,
    pub(crate) previous: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<Start>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<D>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resumed: Option<Resumed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
}

impl<D> Line<D> {
    pub(crate) fn new(number: u64, previous: &[u8; 32]) -> Line<D> {
        Line { number, previous: hex(previous), start: None, decision: None, resumed: None, end: None }
    }
}

/// What a key signs.
pub(crate) fn signed_text(number: u64, time_ns: u64, previous: &[u8; 32]) -> String {
    format!("ringfence decision log 1\n{number}\n{time_ns}\n{}\n", hex(previous))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// Bytes as text: those that are no UTF-8, and the backslash, become `\xNN`.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\x5c"));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}
