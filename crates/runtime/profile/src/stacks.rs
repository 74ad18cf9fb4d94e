//! Samples counted by stack, and what becomes of them: names, folded text, a tree.

use crate::files::Files;
use crate::records::{Mapping, context};
use crate::world::Process;
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

/// Whose code a frame is.
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
    /// Whose it is.
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
    pub(crate) fn add(&mut self, process: &Process, tid: i32, chain: &[u64], files: &mut Files) {
        let mut frames = Vec::new();
        let mut kernel = false;
        // The first address of a side is that of the next instruction, further ones are where calls return to.
        let mut first = true;
        for &address in chain {
            if address >= context::FIRST {
                kernel = address == context::KERNEL;
                if !kernel && address != context::USER {
                    break;
                }
                first = true;
                continue;
            }
            let place = address.saturating_sub(u64::from(!first));
            if kernel {
                frames.push(Frame::Kernel(place));
            } else if let Some(frame) = frame(process, place, files) {
                frames.push(frame);
            } else {
                // Code without frame pointers uses their register for something else; what it leads to is not code.
                if first {
                    frames.push(Frame::Generated);
                }
                break;
            }
            first = false;
        }
        frames.reverse();
        let name = if process.sentry { process.threads.get(&tid) } else { None };
        let name = name.unwrap_or(&process.name).clone();
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

fn frame(process: &Process, address: u64, files: &mut Files) -> Option<Frame> {
    if !process.sentry && STUB.contains(&address) {
        return Some(Frame::Stub);
    }
    let mapping: &Mapping = process.at(address)?;
    Some(match mapping.file.inode {
        0 if mapping.path == "[vdso]" => Frame::Vdso,
        0 => Frame::Generated,
        _ => {
            let offset = mapping.offset.wrapping_add(address - mapping.start);
            Frame::File(files.note(mapping, offset), offset)
        }
    })
}

/// What the guest can choose may not play with the user's terminal, or with the form of the output.
fn clean(text: &str) -> String {
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

    /// A flame graph: one SVG file without references to anything else.
    pub fn flame_graph(&self, title: &str) -> String {
        crate::svg::draw(self, &clean(title))
    }
}
