//! Fuzzing of what crosses a boundary: inputs are mutated and given to the code that has to take them from anybody.
//!
//! ```text
//! fuzz [--seconds N] [--seed N] [TARGET...]     every target for N seconds
//! fuzz --list                                   the targets
//! fuzz TARGET FILE...                           inputs again, one by one
//! ```
//!
//! A target is a function from bytes to a number that stands for what the code made of them (see [`targets`]). It builds
//! on a stable compiler: there is no instrumentation, so an input is kept when it leads to a number not seen before.
//! `fuzz/corpus/TARGET` holds the inputs to begin with, `fuzz/regressions/TARGET` those that were mistakes once. The
//! tests of this package run all of them.
//!
//! A failure is a panic, or an input that takes too long. The input is then in `fuzz/regressions/TARGET`.

#![forbid(unsafe_code)]

mod engine;
mod inputs;
mod targets;

use std::process::ExitCode;
use std::time::Duration;

/// What the command line asks for.
struct Options {
    seconds: u64,
    seed: u64,
    names: Vec<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fuzz: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let options = parse(std::env::args().skip(1))?;
    if let [name, files @ ..] = &options.names[..]
        && !files.is_empty()
        && let Some(target) = targets::find(name)
        && files.iter().all(|file| targets::find(file).is_none())
    {
        return files.iter().try_for_each(|file| {
            let input = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
            engine::once(target, &input);
            println!("{file}: nothing wrong");
            Ok(())
        });
    }
    let chosen = match &options.names[..] {
        [] => targets::ALL.iter().collect(),
        names => names
            .iter()
            .map(|name| targets::find(name).ok_or_else(|| format!("no target {name:?}; see --list")))
            .collect::<Result<Vec<_>, _>>()?,
    };
    for target in chosen {
        let inputs = inputs::of(target.name)?;
        let done = engine::fuzz(target, inputs, Duration::from_secs(options.seconds), options.seed);
        println!(
            "{:<10} {:>9} inputs, {:>5} of them led to something new",
            target.name, done.runs, done.kept
        );
    }
    Ok(())
}

fn parse(args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { seconds: 10, seed: clock_seed(), names: Vec::new() };
    let mut args = args;
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("{arg} takes a number"))
        };
        match arg.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--list" => {
                targets::ALL.iter().for_each(|target| println!("{:<10} {}", target.name, target.what));
                std::process::exit(0);
            }
            flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}")),
            _ => options.names.push(arg),
        }
    }
    Ok(options)
}

/// Another one every time.
fn clock_seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_inputs() {
        for target in targets::ALL {
            let inputs = inputs::of(target.name).unwrap();
            assert!(!inputs.is_empty(), "{} has no corpus", target.name);
            for input in &inputs {
                engine::once(target, input);
            }
        }
    }

    #[test]
    fn every_target_learns_something() {
        for target in targets::ALL {
            let inputs = inputs::of(target.name).unwrap();
            let done = engine::fuzz(target, inputs, Duration::from_millis(200), 1);
            assert!(done.runs > 10 && done.kept > 1, "{}: {} {}", target.name, done.runs, done.kept);
        }
    }
}
