//! The file as types, from which docs/policy.schema.json is made. The parser reads a tree instead of these types,
//! because its messages need the line of every value; a test compares the keys of both.

use crate::parse::{ASK_KEYS, FILE_KEYS, RULE_KEYS};
use schemars::JsonSchema;

/// Rules about what the processes of a container may do. The first rule that matches holds.
#[derive(JsonSchema)]
#[schemars(rename = "Policy", deny_unknown_fields)]
#[allow(dead_code)]
struct File {
    /// Version of the form of this file.
    version: Option<Version>,
    /// What holds for operations that no rule matches; allow, if it is left out.
    default: Option<Action>,
    /// The error number of `default: deny`; EACCES, if it is left out.
    errno: Option<String>,
    /// Decide and record, never act.
    dry_run: Option<bool>,
    /// How rules with `action: ask` ask that do not say it themselves.
    ask: Option<Ask>,
    /// The rules, in their order.
    rules: Vec<Rule>,
}

#[derive(JsonSchema)]
#[allow(dead_code)]
struct Version(#[schemars(range(min = 1, max = 1))] u32);

/// One value, or a list of them.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code)]
enum SomeOf<T> {
    One(T),
    List(#[schemars(length(min = 1))] Vec<T>),
}

/// A number, or a range of numbers as a text.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code)]
enum Number {
    One(i64),
    /// As `1000-1999` or `0x40`.
    Text(
        #[schemars(regex(
            pattern = r"^(-?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+)(-([0-9]+|0x[0-9a-fA-F]+|0o[0-7]+))?$"
        ))]
        String,
    ),
}

/// A test of an argument in a register.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code)]
enum Register {
    One(Number),
    List(#[schemars(length(min = 1))] Vec<Number>),
    Masked(Masked),
}

/// The argument's bits in `mask` are those of `equal`, or all set.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code)]
struct Masked {
    mask: Number,
    equal: Option<SomeOf<Number>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
#[allow(dead_code)]
enum Action {
    Allow,
    Log,
    Deny,
    KillProcess,
    KillContainer,
    Freeze,
    Ask,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code)]
enum Access {
    Read,
    Write,
    Append,
    Create,
    Truncate,
    Execute,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code)]
enum Protocol {
    Tcp,
    Udp,
    Icmp,
    Raw,
    Unix,
    Netlink,
    Packet,
    Other,
}

/// A program outside that decides.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code)]
struct Ask {
    /// Path of the Unix socket at which the program listens.
    #[schemars(regex(pattern = "^/"))]
    socket: String,
    /// How long an answer may take, as 500ms or 2s.
    #[schemars(regex(pattern = "^[0-9]+(us|ms|s|m)$"))]
    timeout: String,
    /// What holds without an answer.
    default: Action,
}

/// A rule: at one of the points, if all conditions hold, the action.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code)]
struct Rule {
    /// A name for messages and the log.
    #[schemars(length(min = 1, max = 200))]
    name: Option<String>,
    /// Operations, as file/open, or system calls, as syscall/openat/enter.
    point: SomeOf<String>,
    /// The object's path: a path, a path with / at its end (all below as well) or a glob.
    path: Option<SomeOf<String>>,
    /// Exceptions to path.
    path_not: Option<SomeOf<String>>,
    /// Path of the program of the process that calls.
    executable: Option<SomeOf<String>>,
    /// Exceptions to executable.
    executable_not: Option<SomeOf<String>>,
    /// SHA-256 of the program of the process that calls.
    executable_sha256: Option<SomeOf<Digest>>,
    /// SHA-256 of the file that is executed.
    file_sha256: Option<SomeOf<Digest>>,
    /// Effective user ID of the process that calls, as the container sees it.
    uid: Option<SomeOf<Number>>,
    /// Exceptions to uid.
    uid_not: Option<SomeOf<Number>>,
    /// Effective group ID of the process that calls, as the container sees it.
    gid: Option<SomeOf<Number>>,
    /// Exceptions to gid.
    gid_not: Option<SomeOf<Number>>,
    /// Addresses: 10.0.0.0/8, 10.1.2.3:443, [fd00::/8]:1-1023, *:53, /run/a.sock, @abstract.
    address: Option<SomeOf<String>>,
    /// Exceptions to address.
    address_not: Option<SomeOf<String>>,
    /// Protocols of the socket.
    protocol: Option<SomeOf<Protocol>>,
    /// Globs, each of which must match one of the arguments of the program that is executed.
    arguments: Option<SomeOf<String>>,
    /// Accesses, one of which must be asked for.
    access: Option<SomeOf<Access>>,
    /// Globs for names of containers.
    container: Option<SomeOf<String>>,
    /// The file was made in the writable layer (or was not).
    new_in_layer: Option<bool>,
    /// One of the new IDs is 0 (or none is).
    to_root: Option<bool>,
    /// The first argument in a register.
    arg0: Option<Register>,
    arg1: Option<Register>,
    arg2: Option<Register>,
    arg3: Option<Register>,
    arg4: Option<Register>,
    arg5: Option<Register>,
    /// What happens.
    action: Action,
    /// The error number of `action: deny`; EACCES, if it is left out.
    errno: Option<String>,
    /// Decide and record, never act; the rules behind this one decide.
    dry_run: Option<bool>,
    /// How to ask.
    ask: Option<Ask>,
}

#[derive(JsonSchema)]
#[allow(dead_code)]
struct Digest(#[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))] String);

fn generated() -> serde_json::Value {
    schemars::schema_for!(File).to_value()
}

/// `UPDATE=1 cargo test -p policy schema` writes the file.
#[test]
fn the_file_in_docs_is_up_to_date() {
    let text = format!("{}\n", serde_json::to_string_pretty(&generated()).unwrap());
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/policy.schema.json");
        std::fs::write(path, &text).unwrap();
        return;
    }
    assert!(
        crate::SCHEMA == text,
        "docs/policy.schema.json: write it with UPDATE=1 cargo test -p policy schema"
    );
}

#[test]
fn the_parser_has_the_same_keys() {
    let schema = generated();
    let keys = |of: &serde_json::Value| {
        let mut keys: Vec<_> = of["properties"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let sorted = |keys: &[&str]| {
        let mut keys: Vec<_> = keys.iter().map(|key| key.to_string()).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&schema), sorted(FILE_KEYS));
    assert_eq!(keys(&schema["$defs"]["Rule"]), sorted(RULE_KEYS));
    assert_eq!(keys(&schema["$defs"]["Ask"]), sorted(ASK_KEYS));
    let words = |name: &str| {
        let words = schema["$defs"][name]["enum"].as_array().unwrap();
        words.iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(words("Action"), crate::Action::NAMES);
    assert_eq!(words("Access"), crate::parse::ACCESS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    assert_eq!(words("Protocol"), crate::parse::PROTOCOLS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}
