//! The line discipline N_TTY. Pure: characters in; lines, echo and effects out.
//!
//! [`Ldisc::input`] takes what the user types, [`Ldisc::read`] gives what a program
//! reads, [`Ldisc::output`] turns what it writes into what the screen gets. Echo goes
//! to the same output.

mod edit;
mod output;
mod read;
mod state;
#[cfg(test)]
mod tests;

pub use self::state::LdiscState;
use crate::termios::Termios;
use abi::Signal;
use std::collections::VecDeque;

/// Most characters that wait for a reader.
pub const CAPACITY: usize = 4095;
/// Echo beyond this much unread output is lost.
const ECHO_LIMIT: usize = 64 << 10;

/// A character that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    byte: u8,
    end: End,
}

/// Whether a canonical read stops at a character.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Goes on.
    No,
    /// Ends the line and belongs to it.
    Line,
    /// Ends the line and is not delivered (VEOF).
    Eof,
}

/// What input did besides filling buffers.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Effects {
    /// Signals for the foreground process group.
    pub signals: Vec<Signal>,
    /// Input (and output) buffers were thrown away by a signal character.
    pub flushed: bool,
    /// Output was stopped (true) or started (false).
    pub flow: Option<bool>,
}

/// The state of one terminal's line discipline.
#[derive(Default)]
pub struct Ldisc {
    termios: Termios,
    /// Characters a read may take.
    ready: VecDeque<Cell>,
    /// The line being edited (canonical mode).
    line: Vec<u8>,
    /// What the screen is to get.
    pub out: VecDeque<u8>,
    /// Output is stopped by VSTOP or tcflow(3).
    pub stopped: bool,
    /// The next character is literal (VLNEXT).
    literal: bool,
    /// In the middle of an ECHOPRT erasure.
    erasing: bool,
    /// Column of the cursor, and that at which the line began.
    column: usize,
    line_column: usize,
}

fn is_control(b: u8) -> bool {
    b < 32 || b == 127
}

/// Letters are those of Latin-1, whatever the program thinks: so they are in Linux.
fn is_upper(b: u8) -> bool {
    matches!(b, b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde)
}

fn is_lower(b: u8) -> bool {
    matches!(b, b'a'..=b'z' | 0xdf..=0xf6 | 0xf8..=0xff)
}

fn is_word(b: u8) -> bool {
    is_upper(b) || is_lower(b) || b.is_ascii_digit() || b == b'_'
}

fn lower(b: u8) -> u8 {
    if is_upper(b) { b + 32 } else { b }
}

fn upper(b: u8) -> u8 {
    if is_lower(b) { b - 32 } else { b }
}

impl Ldisc {
    /// Present attributes.
    pub fn termios(&self) -> &Termios {
        &self.termios
    }

    /// Changes the attributes. What was typed before stays readable in the other mode.
    pub fn set_termios(&mut self, t: Termios) -> Effects {
        let old = std::mem::replace(&mut self.termios, t);
        let mut fx = Effects::default();
        if old.edits() != t.edits() {
            if t.edits() {
                // Raw characters become a line without an end of its own.
                if let Some(c) = self.ready.back_mut() {
                    c.end = End::Line;
                }
            } else {
                let line = std::mem::take(&mut self.line);
                for c in &mut self.ready {
                    c.end = End::No;
                }
                self.ready.extend(line.into_iter().map(|byte| Cell { byte, end: End::No }));
            }
            self.erasing = false;
            self.literal = false;
        }
        // Without IXON the output could not be started again.
        if old.i(libc::IXON) && !t.i(libc::IXON) && self.stopped {
            self.stopped = false;
            fx.flow = Some(false);
        }
        fx
    }

    /// Characters waiting, the unfinished line included.
    pub fn waiting(&self) -> usize {
        self.ready.len() + self.line.len()
    }

    /// True when more input can be taken. While a canonical reader has no complete line there is
    /// always room: what exceeds the line is dropped, so that its end can arrive.
    pub fn has_room(&self) -> bool {
        self.waiting() < CAPACITY || (self.termios.edits() && self.ready.is_empty())
    }

    /// Throws away what has not been read.
    pub fn flush_input(&mut self) {
        self.ready.clear();
        self.line.clear();
        self.literal = false;
        self.erasing = false;
    }

    /// Takes one typed character.
    pub fn input(&mut self, byte: u8, fx: &mut Effects) {
        let t = self.termios;
        let mut c = if t.i(libc::ISTRIP) { byte & 0x7f } else { byte };
        if t.i(libc::IUCLC) && t.l(libc::IEXTEN) {
            c = lower(c);
        }
        // The program behind the master has dealt with all else already.
        if t.l(libc::EXTPROC) {
            if self.waiting() < CAPACITY {
                self.keep(c);
            }
            return;
        }
        if std::mem::take(&mut self.literal) {
            return self.take(c, false);
        }
        if t.i(libc::IXON) {
            if t.is(c, libc::VSTART) {
                return self.flow(false, fx);
            }
            if t.is(c, libc::VSTOP) {
                return self.flow(true, fx);
            }
        }
        if t.l(libc::ISIG) {
            let keys = [
                (libc::VINTR, Signal::SIGINT),
                (libc::VQUIT, Signal::SIGQUIT),
                (libc::VSUSP, Signal::SIGTSTP),
            ];
            if let Some((_, sig)) = keys.into_iter().find(|(k, _)| t.is(c, *k)) {
                return self.signal(c, sig, fx);
            }
        }
        if self.stopped && t.i(libc::IXON) && t.i(libc::IXANY) {
            self.flow(false, fx);
        }
        let typed = c;
        match c {
            b'\r' if t.i(libc::IGNCR) => return,
            b'\r' if t.i(libc::ICRNL) => c = b'\n',
            b'\n' if t.i(libc::INLCR) => c = b'\r',
            _ => {}
        }
        if t.l(libc::ICANON) { self.canonical(c) } else { self.take(c, c != typed) }
    }

    fn flow(&mut self, stop: bool, fx: &mut Effects) {
        if self.stopped != stop {
            self.stopped = stop;
            fx.flow = Some(stop);
        }
    }

    fn signal(&mut self, c: u8, sig: Signal, fx: &mut Effects) {
        if !self.termios.l(libc::NOFLSH) {
            self.flush_input();
            self.out.clear();
            fx.flushed = true;
        }
        fx.signals.push(sig);
        if self.termios.i(libc::IXON) {
            self.flow(false, fx);
        }
        if self.termios.l(libc::ECHO) {
            self.echo(c);
        }
    }

    /// An ordinary character: echoed and kept. A newline that was typed as such is echoed like any
    /// control character, a `converted` one as the newline it is.
    fn take(&mut self, c: u8, converted: bool) {
        let t = self.termios;
        if self.waiting() >= CAPACITY {
            if t.i(libc::IMAXBEL) {
                self.put_out(7);
            }
            return;
        }
        if t.l(libc::ECHO) {
            self.finish_erasing();
            if c == b'\n' && converted {
                self.echo_raw(b'\n');
            } else {
                self.mark_line_column();
                self.echo(c);
            }
        }
        if t.i(libc::PARMRK) && c == 0xff {
            self.keep(c);
        }
        self.keep(c);
    }

    fn keep(&mut self, c: u8) {
        if self.termios.edits() {
            self.line.push(c);
        } else {
            self.ready.push_back(Cell { byte: c, end: End::No });
        }
    }

    fn canonical(&mut self, c: u8) {
        let t = self.termios;
        let ext = t.l(libc::IEXTEN);
        if t.is(c, libc::VERASE) || t.is(c, libc::VKILL) || (ext && t.is(c, libc::VWERASE)) {
            return self.erase(c);
        }
        if ext && t.is(c, libc::VLNEXT) {
            self.literal = true;
            if t.l(libc::ECHO) {
                self.finish_erasing();
                if t.l(libc::ECHOCTL) {
                    self.put_out(b'^');
                    self.put_out(8);
                }
            }
            return;
        }
        if ext && t.l(libc::ECHO) && t.is(c, libc::VREPRINT) {
            self.finish_erasing();
            self.echo(c);
            self.echo_raw(b'\n');
            for b in self.line.clone() {
                self.echo(b);
            }
            return;
        }
        if c == b'\n' {
            if t.l(libc::ECHO | libc::ECHONL) {
                self.echo_raw(b'\n');
            }
            return self.end_line(Cell { byte: c, end: End::Line });
        }
        if t.is(c, libc::VEOF) {
            return self.end_line(Cell { byte: 0, end: End::Eof });
        }
        if t.is(c, libc::VEOL) || (ext && t.is(c, libc::VEOL2)) {
            if t.l(libc::ECHO) {
                self.mark_line_column();
                self.echo(c);
            }
            return self.end_line(Cell { byte: c, end: End::Line });
        }
        self.take(c, false);
    }

    fn end_line(&mut self, last: Cell) {
        let line = std::mem::take(&mut self.line);
        self.ready.extend(line.into_iter().map(|byte| Cell { byte, end: End::No }));
        self.ready.push_back(last);
    }
}
