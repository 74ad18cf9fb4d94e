//! Samples counted by stack, and their output: names, folded text, a tree.

use crate::files::Files;
use crate::records::{Mapping, Registers, context};
use crate::unwind::{self, Rule};
use crate::world::ProcessSample;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use stub::layout::{STUB_TEXT, STUB_TEXT_SIZE};

/// Where the stub's code is in each guest process.
const STUB: Range<u64> = STUB_TEXT..STUB_TEXT + STUB_TEXT_SIZE;
/// Most different stacks; samples with further ones are lost.
const MAX_STACKS: usize = 1 << 18;

/// Most frames of a process in a stack; the host's kernel records half as many.
const MAX_DEPTH: usize = 256;

/// Which code a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Not code: a thread, a process, or a group of them.
    Group,
    /// The guest's.
    Guest,
    /// The sentry's.
    Sentry,
    /// The part of a guest process that hands over to the sentry.
    Stub,
    /// The host kernel's.
    Kernel,
}

/// A frame with its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// The code that it belongs to.
    pub kind: Kind,
    /// Cleaned of control characters.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    /// A place in a file, by the file's number.
    File(u32, u64),
    Stub,
    Vdso,
    /// Code that is in no file.
    Generated,
    Kernel(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stack {
    sentry: bool,
    /// Of the sentry's thread or the guest's process.
    name: Rc<str>,
    /// The outermost first.
    frames: Box<[Frame]>,
}

/// Samples by stack.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    counts: HashMap<Stack, u64>,
    lost: u64,
}

impl Stacks {
    /// Counts a sample.
    pub(crate) fn add(&mut self, seen: &ProcessSample<'_>, files: &mut Files) {
        let sample = &seen.sample;
        let mut frames = kernel_frames(&sample.chain);
        // What ran, and as many callers as one way or the other finds, unless one has found all.
        let pointers = by_frame_pointers(seen, files);
        let (tables, whole) = match sample.registers {
            Some(registers) => by_tables(seen, registers, files),
            None => (Vec::new(), false),
        };
        frames.extend(if whole || tables.len() >= pointers.len() { tables } else { pointers });
        frames.reverse();
        let process = seen.process;
        let thread = if process.sentry { process.threads.get(&seen.tid) } else { None };
        let name = thread.unwrap_or(&process.name).clone();
        let stack = Stack { sentry: process.sentry, name, frames: frames.into() };
        if self.counts.len() >= MAX_STACKS && !self.counts.contains_key(&stack) {
            self.lost += 1;
            return;
        }
        *self.counts.entry(stack).or_default() += 1;
    }

    /// The addresses in the host kernel, in order.
    pub(crate) fn kernel_addresses(&self) -> Vec<u64> {
        let frames = self.counts.keys().flat_map(|stack| &stack.frames);
        let mut all: Vec<u64> =
            frames.filter_map(|frame| if let Frame::Kernel(at) = frame { Some(*at) } else { None }).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The profile, with the names of the files' functions and of the kernel's.
    pub(crate) fn finish(
        self,
        files: &[(HashMap<u64, String>, String)],
        kernel: &HashMap<u64, String>,
        took: Duration,
        frequency: u32,
        lost: u64,
    ) -> Profile {
        let mut profile = Profile { took, frequency, lost: lost + self.lost, ..Profile::default() };
        for (stack, count) in self.counts {
            let code = if stack.sentry { Kind::Sentry } else { Kind::Guest };
            let group = |text: &str| Label { kind: Kind::Group, text: clean(text) };
            let mut labels = vec![group(if stack.sentry { "sentry" } else { "guest" }), group(&stack.name)];
            labels.extend(stack.frames.iter().map(|frame| {
                let (kind, text) = match frame {
                    Frame::File(number, offset) => match files.get(*number as usize) {
                        Some((names, file)) => {
                            (code, names.get(offset).cloned().unwrap_or_else(|| format!("[{file}]")))
                        }
                        None => (code, "[unknown]".into()),
                    },
                    Frame::Stub => (Kind::Stub, "[hand-off]".into()),
                    Frame::Vdso => (code, "[vdso]".into()),
                    Frame::Generated => (code, "[generated code]".into()),
                    Frame::Kernel(at) => {
                        (Kind::Kernel, kernel.get(at).cloned().unwrap_or_else(|| "[kernel]".into()))
                    }
                };
                Label { kind, text: clean(&text) }
            }));
            // Places in one stub or in one unknown file are one frame.
            labels.dedup_by(|a, b| a == b && a.text.starts_with('['));
            *profile.stacks.entry(labels).or_default() += count;
            *if stack.sentry { &mut profile.sentry } else { &mut profile.guest } += count;
        }
        profile
    }
}

/// The addresses of one side in a chain. The first is that of the next instruction, the others are where calls return to, which
/// may be past the end of the function: these are moved into the call.
fn side(chain: &[u64], mark: u64) -> impl Iterator<Item = u64> {
    let after = chain.iter().copied().skip_while(move |address| *address != mark).skip(1);
    let own = after.take_while(|address| *address < context::FIRST);
    own.enumerate().map(|(n, address)| if n == 0 { address } else { address.wrapping_sub(1) })
}

fn kernel_frames(chain: &[u64]) -> Vec<Frame> {
    side(chain, context::KERNEL).map(Frame::Kernel).collect()
}

/// The innermost frame and its callers, as the host's kernel found them by frame pointers.
fn by_frame_pointers(seen: &ProcessSample<'_>, files: &mut Files) -> Vec<Frame> {
    let mut frames = Vec::new();
    for address in side(&seen.sample.chain, context::USER) {
        match frame(seen, address, files) {
            Some(frame) => frames.push(frame),
            None if frames.is_empty() => frames.push(Frame::Generated),
            // Code without frame pointers uses their register for something else; what it leads to is not code.
            None => break,
        }
    }
    frames
}

/// The same by what the files say; true when it ended with the outermost function.
fn by_tables(seen: &ProcessSample<'_>, mut registers: Registers, files: &mut Files) -> (Vec<Frame>, bool) {
    let stack = unwind::Stack { base: registers.sp, bytes: &seen.sample.stack };
    let mut frames = Vec::new();
    let mut place = registers.ip;
    while frames.len() < MAX_DEPTH
        && let Some(frame) = frame(seen, place, files)
    {
        frames.push(frame);
        let rule = match frame {
            Frame::File(number, offset) => files.rule(number, offset),
            _ => Rule::FramePointer,
        };
        let Some(caller) = unwind::step(rule, registers, &stack) else {
            return (frames, rule == Rule::Outermost);
        };
        registers = caller;
        place = caller.ip.wrapping_sub(1);
    }
    (frames, false)
}

fn frame(seen: &ProcessSample<'_>, address: u64, files: &mut Files) -> Option<Frame> {
    let process = seen.process;
    if !process.sentry && STUB.contains(&address) {
        return Some(Frame::Stub);
    }
    let mapping: &Mapping = process.at(address)?;
    Some(match mapping.file.inode {
        0 if mapping.path == "[vdso]" => Frame::Vdso,
        0 => Frame::Generated,
        _ => {
            let offset = mapping.offset.wrapping_add(address - mapping.start);
            Frame::File(files.note(mapping, seen.pid, offset), offset)
        }
    })
}

/// What the guest can choose may not play with the user's terminal, or with the form of the output.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == ';' { ' ' } else { c }).collect()
}

/// What a sandbox spent its time with.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Samples by stack, the outermost frame first.
    pub stacks: BTreeMap<Vec<Label>, u64>,
    /// Samples of the guest's processes.
    pub guest: u64,
    /// Samples of the sentry.
    pub sentry: u64,
    /// Records that did not fit into the host's or our memory.
    pub lost: u64,
    /// How long it was sampled.
    pub took: Duration,
    /// Samples in a second, on each processor.
    pub frequency: u32,
}

impl Profile {
    /// One line for each stack, its frames separated by semicolons, and the count: what flame graph programs read.
    /// The host kernel's frames end in `_[k]`.
    pub fn folded(&self) -> String {
        let mut out = String::new();
        for (stack, count) in &self.stacks {
            for (n, label) in stack.iter().enumerate() {
                let (between, mark) =
                    (if n > 0 { ";" } else { "" }, if label.kind == Kind::Kernel { "_[k]" } else { "" });
                let _ = write!(out, "{between}{}{mark}", label.text);
            }
            let _ = writeln!(out, " {count}");
        }
        out
    }
}
