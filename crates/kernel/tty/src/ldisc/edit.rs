//! Erasing: VERASE, VWERASE, VKILL and their echo.

use super::{Ldisc, is_control, is_word};

#[derive(PartialEq, Eq, Clone, Copy)]
enum What {
    Char,
    Word,
    Line,
}

impl Ldisc {
    /// Ends an ECHOPRT erasure.
    pub(super) fn finish_erasing(&mut self) {
        if std::mem::take(&mut self.erasing) {
            self.echo_raw(b'/');
        }
    }

    /// Deals with an erasing character.
    pub(super) fn erase(&mut self, key: u8) {
        let t = self.termios;
        if self.line.is_empty() {
            return;
        }
        let what = if t.is(key, libc::VERASE) {
            What::Char
        } else if t.l(libc::IEXTEN) && t.is(key, libc::VWERASE) {
            What::Word
        } else {
            What::Line
        };
        if what == What::Line {
            if !t.l(libc::ECHO) {
                return self.line.clear();
            }
            if !(t.l(libc::ECHOK) && t.l(libc::ECHOKE) && t.l(libc::ECHOE)) {
                self.line.clear();
                self.finish_erasing();
                self.echo(t.c(libc::VKILL));
                if t.l(libc::ECHOK) {
                    self.echo_raw(b'\n');
                }
                return;
            }
        }
        let mut in_word = false;
        while let Some(gone) = self.last_char() {
            let first = gone[0];
            if what == What::Word {
                if is_word(first) {
                    in_word = true;
                } else if in_word {
                    break;
                }
            }
            self.line.truncate(self.line.len() - gone.len());
            if t.l(libc::ECHO) {
                self.echo_erased(&gone, what);
            }
            if what == What::Char {
                break;
            }
        }
        if self.line.is_empty() && t.l(libc::ECHO) {
            self.finish_erasing();
        }
    }

    /// The last character of the line; `None` when it is empty or does not start with a whole one.
    fn last_char(&self) -> Option<Vec<u8>> {
        let start = self.line.iter().rposition(|&b| !self.continuation(b))?;
        Some(self.line[start..].to_vec())
    }

    fn echo_erased(&mut self, gone: &[u8], what: What) {
        let t = self.termios;
        let first = gone[0];
        if t.l(libc::ECHOPRT) {
            if !self.erasing {
                self.echo_raw(b'\\');
                self.erasing = true;
            }
            self.echo(first);
            gone[1..].iter().for_each(|&b| self.put_out(b));
        } else if what == What::Char && !t.l(libc::ECHOE) {
            self.echo(t.c(libc::VERASE));
        } else if first == b'\t' {
            self.erase_tab();
        } else {
            let shown_twice = is_control(first) && t.l(libc::ECHOCTL);
            let width = if shown_twice { 2 } else { !is_control(first) as usize };
            for _ in 0..width {
                self.echo_raw(8);
                self.echo_raw(b' ');
                self.echo_raw(8);
            }
        }
    }

    /// Goes back over a tab: how far depends on what is before it, up to the tab before or the line's start.
    fn erase_tab(&mut self) {
        let mut width = 0;
        let mut after_tab = false;
        for &b in self.line.iter().rev() {
            if b == b'\t' {
                after_tab = true;
                break;
            }
            if is_control(b) {
                width += if self.termios.l(libc::ECHOCTL) { 2 } else { 0 };
            } else if !self.continuation(b) {
                width += 1;
            }
        }
        if !after_tab {
            width += self.line_column;
        }
        for _ in 0..8 - width % 8 {
            self.put_out(8);
            self.column = self.column.saturating_sub(1);
        }
    }
}
