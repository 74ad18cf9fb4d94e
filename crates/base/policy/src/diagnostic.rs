//! What is wrong with a file, and where.

use std::fmt;

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line, from 1 on.
    pub line: u32,
    /// Column in characters, from 1 on.
    pub column: u32,
    /// The rule or case: its number and name.
    pub rule: Option<String>,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if let Some(rule) = &self.rule {
            write!(f, "{rule}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// The known word that is nearest to a wrong one.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|known| (strsim::jaro_winkler(word, known), known));
    near.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// "; did you mean X?", if something is near.
pub(crate) fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|known| format!("; did you mean {known}?")).unwrap_or_default()
}
