//! Interpreters of scripts. See execve(2).

use crate::head::read_file;
use crate::{Program, open_program};
use abi::{Errno, Result};
use task::Current;

/// Bytes of a file that decide how it is run.
const HEAD: usize = 256;
/// Nested interpreters of scripts.
const MAX_NESTING: usize = 5;

/// Puts the interpreters of scripts in the place of the scripts.
pub(crate) fn resolve(c: &Current, p: &mut Program) -> Result<()> {
    // What the next interpreter is told to read.
    let mut script = p.filename.clone();
    for depth in 0.. {
        let mut head = [0u8; HEAD];
        let n = read_file(c, &p.file, 0, &mut head)?;
        if n > 0 {
            vfs::notify::by_file(c, &p.file, vfs::notify::event::ACCESS);
        }
        if n < 2 || &head[..2] != b"#!" {
            return Ok(());
        }
        if depth >= MAX_NESTING {
            return Err(Errno::ELOOP);
        }
        if p.inaccessible {
            return Err(Errno::ENOENT);
        }
        let (interp, arg) = parse_shebang(&head[..n])?;
        let mut argv = vec![interp.clone()];
        argv.extend(arg);
        argv.push(std::mem::replace(&mut script, interp.clone()));
        argv.extend(p.argv.drain(..).skip(1));
        p.argv = argv;
        p.file = open_program(c, &interp)?;
    }
    Ok(())
}

/// `#! interpreter [argument]`: blanks around both are dropped, the rest of the line is one argument.
fn parse_shebang(head: &[u8]) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let rest = &head[2..];
    let (line, complete) = match rest.iter().position(|&b| b == b'\n' || b == 0) {
        Some(n) => (&rest[..n], true),
        None => (rest, head.len() < HEAD),
    };
    let start = line.iter().position(|b| !blank(b)).ok_or(Errno::ENOEXEC)?;
    let line = &line[start..];
    let end = line.iter().position(blank);
    // A name that runs to the end of what was read may be cut off.
    if end.is_none() && !complete {
        return Err(Errno::ENOEXEC);
    }
    let interp = &line[..end.unwrap_or(line.len())];
    let arg = &line[interp.len()..];
    let arg = arg.iter().position(|b| !blank(b)).map(|s| &arg[s..]);
    let arg = arg.map(|a| {
        let end = a.iter().rposition(|b| !blank(b)).map_or(0, |e| e + 1);
        a[..end].to_vec()
    });
    Ok((interp.to_vec(), arg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shebang_lines() {
        let p = |s: &str| parse_shebang(s.as_bytes());
        assert_eq!(p("#!/bin/sh\n"), Ok((b"/bin/sh".to_vec(), None)));
        assert_eq!(p("#! /bin/sh -e x \n"), Ok((b"/bin/sh".to_vec(), Some(b"-e x".to_vec()))));
        assert_eq!(p("#!/bin/sh"), Ok((b"/bin/sh".to_vec(), None)));
        assert_eq!(p("#!  \n"), Err(Errno::ENOEXEC));
        assert_eq!(parse_shebang(format!("#!{}", "a".repeat(254)).as_bytes()), Err(Errno::ENOEXEC));
    }
}
