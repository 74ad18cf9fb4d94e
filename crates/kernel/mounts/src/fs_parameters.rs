//! Parameters of file systems, as mount(2) and fsconfig(2) give them, and what each type knows of them.

use std::sync::Arc;
use vfs::file::OpenFile;

/// The value of a parameter.
#[derive(Clone)]
pub enum Value {
    /// None: the name alone.
    Flag,
    /// Text.
    String(Vec<u8>),
    /// An open file (FSCONFIG_SET_FD).
    File(Arc<OpenFile>),
    /// Of a kind that no type takes (FSCONFIG_SET_BINARY, FSCONFIG_SET_PATH).
    Other,
}

impl Value {
    /// Bytes of text.
    pub fn text_len(&self) -> usize {
        if let Value::String(text) = self { text.len() } else { 0 }
    }
}

/// A parameter: name and value.
pub type Parameter = (Vec<u8>, Value);

/// What a parameter takes.
#[derive(Clone, Copy)]
pub enum Takes {
    /// No value.
    Flag,
    /// Any text.
    Text,
    /// Text or an open file.
    Place,
    /// Text that passes this test.
    Checked(fn(&str) -> bool),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A parameter that a type knows: its name and what it takes.
pub type ParameterSpec = (&'static str, Takes);

/// A decimal, octal or hexadecimal number of 32 bits.
pub fn is_u32(s: &str) -> bool {
    number(s).is_some_and(|n| n <= u32::MAX.into())
}

/// An octal number of 32 bits.
pub fn is_octal(s: &str) -> bool {
    u32::from_str_radix(s, 8).is_ok()
}

/// A number as kernels read it: decimal, or octal after `0`, or hexadecimal after `0x`.
pub fn number(s: &str) -> Option<u64> {
    match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if s.len() > 1 && s.starts_with('0') => u64::from_str_radix(s, 8).ok(),
        None if s.starts_with('+') => None,
        None => s.parse().ok(),
    }
}

/// Says what is wrong with a parameter of a type that knows these; `None` when nothing is.
pub fn complaint(known: &[ParameterSpec], name: &[u8], value: &Value) -> Option<String> {
    let shown = String::from_utf8_lossy(name);
    let Some((_, takes)) = known.iter().find(|(k, _)| k.as_bytes() == name) else {
        return Some(format!("Unknown parameter '{shown}'"));
    };
    let text = match value {
        Value::String(s) => std::str::from_utf8(s).ok(),
        _ => None,
    };
    let good = match (takes, value) {
        (Takes::Flag, Value::Flag) => true,
        (Takes::Flag, _) => return Some(format!("Unexpected value for '{shown}'")),
        (Takes::Text, Value::String(_)) | (Takes::Place, Value::String(_) | Value::File(_)) => true,
        (Takes::Checked(test), _) => text.is_some_and(test),
        (Takes::Word(words), _) => text.is_some_and(|s| words.contains(&s)),
        _ => false,
    };
    (!good).then(|| format!("Bad value for '{shown}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[ParameterSpec] =
        &[("flag", Takes::Flag), ("n", Takes::Checked(is_u32)), ("w", Takes::Word(&["on", "off"]))];

    fn said(name: &str, value: &Value) -> Option<String> {
        complaint(KNOWN, name.as_bytes(), value)
    }

    #[test]
    fn parameters_are_judged() {
        let s = |v: &str| Value::String(v.into());
        assert_eq!(said("flag", &Value::Flag), None);
        assert_eq!(said("flag", &s("1")).unwrap(), "Unexpected value for 'flag'");
        assert_eq!(said("n", &s("0x10")), None);
        assert_eq!(said("n", &s("ten")).unwrap(), "Bad value for 'n'");
        assert_eq!(said("n", &Value::Flag).unwrap(), "Bad value for 'n'");
        assert_eq!(said("w", &s("off")), None);
        assert_eq!(said("w", &s("of")).unwrap(), "Bad value for 'w'");
        assert_eq!(said("x", &Value::Flag).unwrap(), "Unknown parameter 'x'");
    }
}
