//! Builds the stub image: prints the layout and the table of native calls as a C header, compiles `csrc/`
//! freestanding, links it at its address and flattens it.

#![allow(missing_docs, dead_code, reason = "layout.rs is included for its tables only")]

#[path = "src/capture.rs"]
mod capture;
#[path = "src/layout.rs"]
mod layout;
#[path = "../platform/src/native.rs"]
mod native;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rerun-if-changed=src/layout.rs");
    println!("cargo::rerun-if-changed=src/capture.rs");
    println!("cargo::rerun-if-changed=../platform/src/native.rs");
    println!("cargo::rerun-if-changed=build.rs");
    std::fs::write(out.join("layout.h"), header()).expect("write layout.h");
    let include = format!("-I{}", out.display());
    let path = |name: &str| out.join(name).display().to_string();
    run(
        "gcc",
        &[
            "-O2",
            "-std=gnu11",
            "-ffreestanding",
            "-fpic",
            "-fvisibility=hidden",
            "-mgeneral-regs-only",
            "-mno-red-zone",
            "-fno-stack-protector",
            "-fcf-protection=none",
            "-fno-asynchronous-unwind-tables",
            "-fno-tree-loop-distribute-patterns",
            "-mfsgsbase",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
            &include,
            "-c",
            "csrc/stub.c",
            "-o",
            &path("stub_c.o"),
        ],
    );
    run("gcc", &[&include, "-c", "csrc/entry.S", "-o", &path("entry.o")]);
    run(
        "ld",
        &[
            "-T",
            "csrc/stub.ld",
            "-nostdlib",
            "--build-id=none",
            "--no-undefined",
            "-z",
            "noexecstack",
            &format!("--defsym=STUB_TEXT={:#x}", layout::STUB_TEXT),
            "-o",
            &path("stub.elf"),
            &path("entry.o"),
            &path("stub_c.o"),
        ],
    );
    run("objcopy", &["-O", "binary", &path("stub.elf"), &path("stub.bin")]);
}

fn run(tool: &str, args: &[&str]) {
    match Command::new(tool).args(args).status() {
        Ok(s) if s.success() => {}
        Ok(s) => panic!("{tool} failed ({s}) on the stub"),
        Err(e) => panic!("cannot run {tool}: {e}; install gcc and binutils to build the stub"),
    }
}

fn header() -> String {
    let mut h = String::from("/* Generated from layout.rs and capture.rs. */\n#pragma once\n");
    for (name, value) in layout::CONSTANTS {
        writeln!(h, "#define {name} {value:#x}").unwrap();
    }
    for (name, _, fields) in layout::STRUCTS {
        for (f, _, offset) in *fields {
            writeln!(h, "#define {name}_{f} {offset:#x}").unwrap();
        }
    }
    h.push_str("#ifndef __ASSEMBLER__\n");
    h.push_str("typedef unsigned long u64; typedef unsigned int u32; typedef unsigned short u16; typedef unsigned char u8;\n");
    for (name, size, fields) in layout::STRUCTS {
        writeln!(h, "struct {name} {{").unwrap();
        for (f, t, _) in *fields {
            writeln!(h, "  {};", declare(f, t)).unwrap();
        }
        writeln!(h, "}};\n_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");").unwrap();
        for (f, _, offset) in *fields {
            writeln!(h, "_Static_assert(__builtin_offsetof(struct {name}, {f}) == {offset}, \"{f}\");")
                .unwrap();
        }
    }
    // With one more value, so that the type holds any register.
    h.push_str("enum native_call { NATIVE_NONE = -1ul");
    for (number, name, _) in native::NATIVE.iter().filter(|(.., how)| *how == native::Native::Code) {
        write!(h, ", NATIVE_{name} = {number}").unwrap();
    }
    h.push_str(" };\n");
    h.push_str("struct capture { u8 kind, arg; u16 len; };\n");
    writeln!(h, "#define CAPTURE_TABLE_LEN {}", capture::TABLE_LEN).unwrap();
    h.push_str(
        "#ifdef WANT_CAPTURE_TABLE\nstatic const struct capture capture_table[CAPTURE_TABLE_LEN][2] = {\n",
    );
    for (nr, entries) in capture::TABLE {
        assert!(entries.len() <= 2 && usize::from(*nr) < capture::TABLE_LEN);
        write!(h, "  [{nr}] = {{").unwrap();
        for e in *entries {
            use capture::Capture::{Array, Buffer, Fixed, String};
            let (kind, arg, len) = match *e {
                Buffer(p, l) => ("CAP_BUFFER", p, u16::from(l)),
                String(p) => ("CAP_STRING", p, 0),
                Fixed(p, n) => ("CAP_FIXED", p, n),
                Array(p, l, n) => ("CAP_ARRAY", p, u16::from(l) + 16 * n),
            };
            write!(h, "{{{kind}, {arg}, {len}}}, ").unwrap();
        }
        h.push_str("},\n");
    }
    h.push_str("};\n#endif\n#endif\n");
    h
}

/// C declaration of a field: `u64`, or `[u64; 6]`.
fn declare(name: &str, rust: &str) -> String {
    let c = |t: &str| match t {
        "u8" | "u16" | "u32" | "u64" => t.to_string(),
        other => format!("struct {other}"),
    };
    match rust.strip_prefix('[').and_then(|t| t.strip_suffix(']')).and_then(|t| t.split_once(';')) {
        Some((t, n)) => format!("{} {name}[{}]", c(t.trim()), n.trim()),
        None => format!("{} {name}", c(rust)),
    }
}
