//! Patterns of paths and of other texts. Both are bytes: a path need not be UTF-8.
//!
//! A pattern of a path matches component by component, as a set of positions in the pattern (a bit each) that moves
//! on with every component. So its time is bounded by the product of both lengths, and nothing is allocated.

use std::fmt;

/// Most components of a pattern.
const PARTS_MAX: usize = 60;
/// Longest pattern, in bytes.
const LENGTH_MAX: usize = 4096;

/// A pattern of one component of a path, or of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    kind: GlobKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobKind {
    Literal(Vec<u8>),
    Tokens(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// This character.
    Unit(u32),
    /// `?`
    One,
    /// `*`
    Many,
    /// `[...]`
    Class { not: bool, ranges: Vec<(u32, u32)> },
}

/// A byte that belongs to no character is a unit above all characters.
const BYTE: u32 = 0x11_0000;

/// The first character of `text`, or its first byte, and its length.
fn unit(text: &[u8]) -> Option<(u32, usize)> {
    let first = *text.first()?;
    if first < 0x80 {
        return Some((u32::from(first), 1));
    }
    let chunk = text[..text.len().min(4)].utf8_chunks().next()?;
    match chunk.valid().chars().next() {
        Some(c) => Some((c as u32, c.len_utf8())),
        None => Some((BYTE + u32::from(first), 1)),
    }
}

/// A character of a pattern: with `escaped`, it means itself.
struct Written {
    bytes: [u8; 4],
    len: usize,
    escaped: bool,
}

impl Written {
    fn is(&self, special: u8) -> bool {
        !self.escaped && self.len == 1 && self.bytes[0] == special
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Resolves `\c` and `\xNN`.
fn written(text: &str) -> Result<Vec<Written>, String> {
    let of = |c: char, escaped| {
        let mut bytes = [0; 4];
        let len = c.encode_utf8(&mut bytes).len();
        Written { bytes, len, escaped }
    };
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(of(c, false));
            continue;
        }
        match chars.next() {
            None => {
                return Err("\\ at the end stands for nothing: write \\\\ for the character itself".into());
            }
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                let byte = (digits.len() == 2).then(|| u8::from_str_radix(&digits, 16).ok()).flatten();
                let byte =
                    byte.filter(|byte| *byte != 0).ok_or("\\x takes two hexadecimal digits, not 00")?;
                out.push(Written { bytes: [byte, 0, 0, 0], len: 1, escaped: true });
            }
            Some(c) if c.is_ascii_alphanumeric() => {
                return Err(format!("\\{c} stands for nothing: write \\\\ for a backslash"));
            }
            Some(c) => out.push(of(c, true)),
        }
    }
    Ok(out)
}

impl Glob {
    /// Reads `*`, `?`, `[...]` and `\`.
    pub fn parse(text: &str) -> Result<Glob, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("a pattern is at most {LENGTH_MAX} bytes long"));
        }
        let written = written(text)?;
        if let Some(c) = written.iter().find(|c| c.is(b'{') || c.is(b'}')) {
            let c = char::from(c.bytes[0]);
            return Err(format!(
                "{{a,b}} is no pattern: write a list of two, or \\{c} for the character itself"
            ));
        }
        if !written.iter().any(|c| [b'*', b'?', b'[', b']'].iter().any(|special| c.is(*special))) {
            let bytes = written.iter().flat_map(|c| c.bytes()).copied().collect();
            return Ok(Glob { kind: GlobKind::Literal(bytes) });
        }
        let mut tokens = Vec::new();
        let mut literal = Vec::new();
        let mut rest = &written[..];
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            let token = if first.is(b'*') {
                Token::Many
            } else if first.is(b'?') {
                Token::One
            } else if first.is(b']') {
                return Err("] without a [: write \\] for the character itself".into());
            } else if first.is(b'[') {
                let end = class_end(rest).ok_or("[ without a ]: write \\[ for the character itself")?;
                let token = class(&rest[..end])?;
                rest = &rest[end + 1..];
                token
            } else {
                literal.extend_from_slice(first.bytes());
                continue;
            };
            push_units(&mut tokens, &mut literal);
            if token != Token::Many || tokens.last() != Some(&Token::Many) {
                tokens.push(token);
            }
        }
        push_units(&mut tokens, &mut literal);
        Ok(Glob { kind: GlobKind::Tokens(tokens) })
    }

    /// True when the whole of `text` is what the pattern says.
    pub fn matches(&self, text: &[u8]) -> bool {
        let tokens = match &self.kind {
            GlobKind::Literal(bytes) => return bytes == text,
            GlobKind::Tokens(tokens) => tokens,
        };
        let (mut token, mut at) = (0, 0);
        // Where the last `*` stands, and where its text ends for now.
        let mut star: Option<(usize, usize)> = None;
        loop {
            let here = unit(&text[at..]);
            match (tokens.get(token), here) {
                (Some(Token::Many), _) => {
                    star = Some((token, at));
                    token += 1;
                    continue;
                }
                (Some(expected), Some((c, len))) if expected.takes(c) => {
                    token += 1;
                    at += len;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((many, end)) = star else { return false };
            let Some((_, len)) = unit(&text[end..]) else { return false };
            star = Some((many, end + len));
            (token, at) = (many + 1, end + len);
        }
    }

    /// True when this pattern matches all that `other` matches; false also when that is not easily seen.
    pub(crate) fn covers(&self, other: &Glob) -> bool {
        let all = matches!(&self.kind, GlobKind::Tokens(tokens) if tokens[..] == [Token::Many]);
        all || self == other || matches!(&other.kind, GlobKind::Literal(bytes) if self.matches(bytes))
    }

    fn is_literally(&self, text: &[u8]) -> bool {
        matches!(&self.kind, GlobKind::Literal(bytes) if bytes == text)
    }
}

impl Token {
    fn takes(&self, c: u32) -> bool {
        match self {
            Token::Unit(unit) => *unit == c,
            Token::One => true,
            Token::Many => false,
            Token::Class { not, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *not
            }
        }
    }
}

fn push_units(tokens: &mut Vec<Token>, literal: &mut Vec<u8>) {
    let mut rest = &literal[..];
    while let Some((c, len)) = unit(rest) {
        tokens.push(Token::Unit(c));
        rest = &rest[len..];
    }
    literal.clear();
}

/// Where the class ends that begins before `rest`. A `]` that comes first is one of its characters.
fn class_end(rest: &[Written]) -> Option<usize> {
    let from = usize::from(rest.first().is_some_and(|c| c.is(b'!') || c.is(b'^')));
    (from + 1..rest.len()).find(|at| rest[*at].is(b']'))
}

fn class(inside: &[Written]) -> Result<Token, String> {
    let not = inside.first().is_some_and(|c| c.is(b'!') || c.is(b'^'));
    let mut rest = &inside[usize::from(not)..];
    let value = |c: &Written| unit(c.bytes()).map_or(0, |(c, _)| c);
    let mut ranges = Vec::new();
    while let Some(first) = rest.first() {
        let low = value(first);
        match rest {
            [_, dash, last, ..] if dash.is(b'-') => {
                let high = value(last);
                if high < low {
                    return Err("the ends of a range in [...] are in the wrong order".into());
                }
                ranges.push((low, high));
                rest = &rest[3..];
            }
            _ => {
                ranges.push((low, low));
                rest = &rest[1..];
            }
        }
    }
    Ok(Token::Class { not, ranges })
}

/// A pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// Nothing is `**`.
    parts: Vec<Option<Glob>>,
    /// A bit for each `**`.
    any: u64,
}

/// Positions in a pattern, a bit each; the one behind its last component is that of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Positions(u64);

impl Positions {
    /// True when no path below can match.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when a path that matches from here on may also match from `other` on.
    pub(crate) fn within(self, other: Positions) -> bool {
        self.0 & !other.0 == 0
    }
}

impl Pattern {
    /// Reads a path, a path with `/` at its end (everything below as well), or a glob.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let Some(relative) = text.strip_prefix('/') else {
            return Err(format!(
                "{text:?} is no path from the root on: write /{text}, or /**/{text} for any place"
            ));
        };
        if text.len() > LENGTH_MAX {
            return Err(format!("a pattern is at most {LENGTH_MAX} bytes long"));
        }
        let (relative, below) = match relative.strip_suffix('/') {
            Some(relative) => (relative, true),
            None => (relative, relative.is_empty()),
        };
        let mut parts = Vec::new();
        if !relative.is_empty() {
            for component in relative.split('/') {
                parts.push(part(component)?);
            }
        }
        if below && !matches!(parts.last(), Some(None)) {
            parts.push(None);
        }
        if parts.len() > PARTS_MAX {
            return Err(format!("a pattern has at most {PARTS_MAX} components"));
        }
        let any = parts.iter().enumerate().filter(|(_, part)| part.is_none()).map(|(at, _)| 1 << at).sum();
        Ok(Pattern { text: text.to_owned(), parts, any })
    }

    /// True for a path that the pattern describes.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.accepts(self.positions(path))
    }

    /// The positions after a path.
    pub(crate) fn positions(&self, path: &[u8]) -> Positions {
        if !path.starts_with(b"/") {
            return Positions(0);
        }
        let mut set = self.onwards(1);
        for component in path.split(|byte| *byte == b'/').filter(|component| !component.is_empty()) {
            let mut next = set & self.any;
            let mut left = set & !self.any;
            while left != 0 {
                let at = left.trailing_zeros() as usize;
                left &= left - 1;
                if self
                    .parts
                    .get(at)
                    .is_some_and(|part| part.as_ref().is_some_and(|glob| glob.matches(component)))
                {
                    next |= 1 << (at + 1);
                }
            }
            set = self.onwards(next);
            if set == 0 {
                break;
            }
        }
        Positions(set)
    }

    fn accepts(&self, at: Positions) -> bool {
        at.0 >> self.parts.len() & 1 == 1
    }

    /// True when everything below a path with these positions matches, and the path itself.
    pub(crate) fn accepts_below(&self, at: Positions) -> bool {
        let last = self.parts.len().wrapping_sub(1);
        matches!(self.parts.last(), Some(None)) && at.0 >> last & 1 == 1
    }

    /// Adds the positions behind `**`, which may stand for nothing.
    fn onwards(&self, mut set: u64) -> u64 {
        loop {
            let more = set | (set & self.any) << 1;
            if more == set {
                return set;
            }
            set = more;
        }
    }

    /// True when this pattern matches all that `other` matches; false also when that is not easily seen.
    pub(crate) fn covers(&self, other: &Pattern) -> bool {
        let (rows, columns) = (other.parts.len(), self.parts.len());
        // covered[i][j]: what is left of `other` from i on is covered by what is left of `self` from j on.
        let mut covered = vec![vec![false; columns + 1]; rows + 1];
        for i in (0..=rows).rev() {
            for j in (0..=columns).rev() {
                covered[i][j] = match (other.parts.get(i), self.parts.get(j)) {
                    (None, None) => true,
                    (None, Some(part)) => part.is_none() && covered[i][j + 1],
                    (Some(_), None) => false,
                    (Some(_), Some(None)) => covered[i + 1][j] || covered[i][j + 1],
                    (Some(None), Some(Some(_))) => false,
                    (Some(Some(one)), Some(Some(own))) => own.covers(one) && covered[i + 1][j + 1],
                };
            }
        }
        covered[0][0]
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn part(component: &str) -> Result<Option<Glob>, String> {
    if component == "**" {
        return Ok(None);
    }
    if component.contains("**") && !component.contains('\\') && !component.contains('[') {
        return Err("** stands alone between slashes, as in /srv/**/bin: write * for a part of a name".into());
    }
    if component.is_empty() {
        return Err("a path has no empty component: write one /".into());
    }
    let glob = Glob::parse(component)?;
    if glob.is_literally(b".") || glob.is_literally(b"..") {
        return Err(
            "a path is compared after it was walked, so . and .. never occur: write the place itself".into(),
        );
    }
    let slash = match &glob.kind {
        GlobKind::Literal(bytes) => bytes.contains(&b'/'),
        GlobKind::Tokens(tokens) => tokens.contains(&Token::Unit(u32::from(b'/'))),
    };
    if slash {
        return Err("a name has no /".into());
    }
    Ok(Some(glob))
}

#[cfg(test)]
#[path = "glob_tests.rs"]
mod tests;
