//! Checks of the workspace that the compiler does not make. `cargo xtask` lists them.

#![forbid(unsafe_code)]

mod changelog;
mod circles;
mod clocks;
mod deps;
mod habits;
mod layers;
mod metadata;
mod prose;
mod readmes;
mod sources;
mod statics;
mod tours;
mod unused;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let problems = match std::env::args().nth(1).as_deref() {
        Some("layers") => layers::check().and_then(|mut found| {
            found.extend(unused::check()?);
            found.extend(prose::check()?);
            found.extend(readmes::check()?);
            found.extend(changelog::check()?);
            found.extend(tours::check()?);
            found.extend(words::check()?);
            Ok(found)
        }),
        Some("deps") => deps::check(),
        Some("circles") => match std::env::args().nth(2) {
            Some(folder) => circles::show(std::path::Path::new("."), &folder),
            None => Err("circles: name a crate's folder, for example crates/kernel/vfs".into()),
        },
        _ => {
            eprintln!("usage: cargo xtask layers|deps|circles FOLDER");
            eprintln!(
                "  layers  crates depend downwards only and use what they declare, unsafe code is where it may be, no static of the kernel changes without a reason, its locks have ranks, references are not counted without a reason, objects keep moments of the kernel's clock, modules do not need each other in circles, files are not too long, documents and scripts are wrapped, READMEs list the crates of their folders, the changelog has the version, tours are short and true, texts do not call things persons"
            );
            eprintln!("  deps    dependencies have the licences and the sources that deny.toml allows");
            return ExitCode::from(2);
        }
    };
    match problems {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            eprintln!("{} problem(s)", problems.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
