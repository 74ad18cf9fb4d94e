//! The shim's messages for a user that calls it by hand.

use std::process::{Command, Output, Stdio};

fn shim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_containerd-shim-ringfence-v1"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn help() {
    for flag in ["-h", "-help", "--help"] {
        let output = shim(&[flag]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{flag}");
        for word in ["usage: containerd-shim-ringfence-v1", "-namespace", "-info", "start", "delete"] {
            assert!(text.contains(word), "{flag}: {word}");
        }
    }
}

#[test]
fn mistakes_are_told_in_words() {
    for (args, word) in [
        (&["--nosuch"][..], "-nosuch"),
        (&[], "-namespace is missing"),
        (&["start"], "-namespace is missing"),
    ] {
        let output = shim(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(
            text.contains(word) && text.contains("--help") && !text.contains("InvalidArgument"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
