//! A line discipline as plain data, for a checkpoint.

use super::{CAPACITY, Cell, End, Ldisc};
use crate::termios::Termios;
use abi::{Errno, Result};

/// Most bytes for the screen that are taken out of an image.
const MOST: usize = 1 << 20;
/// Columns beyond this are of no terminal.
const COLUMNS: usize = 1 << 30;

/// A line discipline as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LdiscState {
    /// Attributes.
    pub termios: Termios,
    /// Characters that a read may take, and whether a line ends behind each: 0 no, 1 yes, 2 yes and it is not delivered.
    pub ready: Vec<(u8, u8)>,
    /// The line that is being edited.
    pub line: Vec<u8>,
    /// What the screen is to get.
    pub out: Vec<u8>,
    /// Output is stopped.
    pub stopped: bool,
    /// The next character is literal.
    pub literal: bool,
    /// In the middle of an erasure that is shown.
    pub erasing: bool,
    /// Column of the cursor, and that at which the line began.
    pub columns: (usize, usize),
}

impl Ldisc {
    /// As plain data.
    pub fn state(&self) -> LdiscState {
        let cell = |cell: &Cell| (cell.byte, cell.end as u8);
        LdiscState {
            termios: self.termios,
            ready: self.ready.iter().map(cell).collect(),
            line: self.line.clone(),
            out: self.out.iter().copied().collect(),
            stopped: self.stopped,
            literal: self.literal,
            erasing: self.erasing,
            columns: (self.column, self.line_column),
        }
    }

    /// Back from plain data. EINVAL for what no line discipline holds.
    pub fn restore(saved: &LdiscState) -> Result<Ldisc> {
        let (column, line_column) = saved.columns;
        let fits = saved.ready.len() <= 2 * CAPACITY
            && saved.line.len() <= 2 * CAPACITY
            && saved.out.len() <= MOST
            && column.max(line_column) <= COLUMNS;
        let cell = |(byte, end): &(u8, u8)| {
            let end = match end {
                0 => End::No,
                1 => End::Line,
                2 => End::Eof,
                _ => return None,
            };
            Some(Cell { byte: *byte, end })
        };
        let ready: Option<_> = saved.ready.iter().map(cell).collect();
        Ok(Ldisc {
            termios: saved.termios,
            ready: ready.filter(|_| fits).ok_or(Errno::EINVAL)?,
            line: saved.line.clone(),
            out: saved.out.iter().copied().collect(),
            stopped: saved.stopped,
            literal: saved.literal,
            erasing: saved.erasing,
            column,
            line_column,
        })
    }
}
