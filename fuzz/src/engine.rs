//! The loop: mutate an input, run it, keep it if it leads to something new.

use crate::inputs;
use crate::targets::Target;
use mutatis::Session;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

/// Longest input.
const LONGEST: usize = 16 << 10;
/// Most inputs that are kept.
const MOST: usize = 4096;
/// Most changes from one input to the next.
const CHANGES: usize = 6;
/// How long one input may take, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a run has come to.
pub(crate) struct Done {
    pub(crate) runs: u64,
    pub(crate) kept: usize,
}

/// The input that runs: its target, itself, and since when.
static CURRENT: Mutex<Option<(&'static str, Vec<u8>, Instant)>> = Mutex::new(None);

fn current() -> MutexGuard<'static, Option<(&'static str, Vec<u8>, Instant)>> {
    CURRENT.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Writes the current input down, and says so.
fn blame(why: &str) {
    if let Some((target, input, _)) = current().take() {
        let path = inputs::keep(target, &input);
        eprintln!(
            "fuzz: {target}: {why}; the input is {}, run it again with fuzz {target} FILE",
            path.display()
        );
    }
}

/// Has panics and long runs blamed on the input.
fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            hook(info);
            blame("it panics");
        }));
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let late = current().as_ref().is_some_and(|(.., since)| since.elapsed() > PATIENCE);
                if late {
                    blame("it takes too long");
                    std::process::abort();
                }
            }
        });
    });
}

/// Runs one input.
pub(crate) fn once(target: &Target, input: &[u8]) -> u64 {
    watch();
    *current() = Some((target.name, input.to_vec(), Instant::now()));
    let outcome = (target.run)(input);
    *current() = None;
    outcome
}

/// Runs a target for some time.
pub(crate) fn fuzz(target: &Target, mut inputs: Vec<Vec<u8>>, time: Duration, seed: u64) -> Done {
    let end = Instant::now() + time;
    let mut outcomes: HashSet<u64> = inputs.iter().map(|input| once(target, input)).collect();
    let mut runs = inputs.len() as u64;
    let mut random = Random::new(seed);
    while Instant::now() < end {
        let input = next(&mut random, target, &inputs);
        runs += 1;
        if outcomes.insert(once(target, &input)) && inputs.len() < MOST {
            inputs.push(input);
        }
    }
    Done { runs, kept: outcomes.len() }
}

/// Random numbers (SplitMix64), and the mutations of single values.
struct Random {
    state: u64,
    session: Session,
}

impl Random {
    fn new(seed: u64) -> Self {
        Self { state: seed, session: Session::new().seed(seed) }
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % end.max(1) as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}

/// Another input, made of those that there are.
fn next(random: &mut Random, target: &Target, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut input = random.one_of(inputs).cloned().unwrap_or_default();
    for _ in 0..1 + random.below(CHANGES) {
        match random.below(6) {
            0 => splice(random, &mut input, inputs),
            1 | 2 if !target.words.is_empty() => insert_word(random, &mut input, target.words),
            // An input that cannot be changed any further is run as it is.
            _ => drop(random.session.mutate(&mut input)),
        }
    }
    input.truncate(LONGEST);
    input
}

/// Puts a part of another input into this one, over what is there or between.
fn splice(random: &mut Random, input: &mut Vec<u8>, inputs: &[Vec<u8>]) {
    let Some(other) = random.one_of(inputs) else { return };
    let from = random.below(other.len());
    let len = random.below(other.len() - from + 1);
    let at = random.below(input.len() + 1);
    let over = random.below(len + 1).min(input.len() - at);
    input.splice(at..at + over, other[from..from + len].iter().copied());
}

/// Puts a word that the code knows somewhere.
fn insert_word(random: &mut Random, input: &mut Vec<u8>, words: &[&str]) {
    let Some(word) = random.one_of(words) else { return };
    let at = random.below(input.len() + 1);
    input.splice(at..at, word.bytes());
}
