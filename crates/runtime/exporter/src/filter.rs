//! Which figures are shown, and under which names.

use metrics::Figure;
use regex::bytes::{Regex, RegexBuilder};

/// Longest pattern.
const MAX_PATTERN: usize = 1024;
/// Most bytes that a compiled pattern takes.
const MAX_COMPILED: usize = 1 << 20;

/// A regular expression that the names of figures match, without the prefix. The default matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter(Option<Regex>);

impl Filter {
    /// Compiles a pattern; an empty one matches all. Errors are lines for the user.
    pub fn new(pattern: &str) -> Result<Self, String> {
        if pattern.is_empty() {
            return Ok(Self(None));
        }
        if pattern.len() > MAX_PATTERN {
            return Err(format!("regular expression: longer than {MAX_PATTERN} bytes"));
        }
        let mut builder = RegexBuilder::new(pattern);
        // Names are ASCII.
        let compiled = builder.unicode(false).size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).build();
        compiled.map(|regex| Self(Some(regex))).map_err(|error| {
            let error = error.to_string();
            let line = error.lines().last().unwrap_or_default();
            format!("regular expression {pattern:?}: {}", line.trim_start_matches("error: "))
        })
    }

    /// Whether a figure is shown.
    pub fn shows(&self, figure: &Figure) -> bool {
        self.0.as_ref().is_none_or(|regex| regex.is_match(figure.name.as_bytes()))
    }
}

/// Whether names of Prometheus may begin with this.
pub fn valid_prefix(prefix: &str) -> bool {
    let mut chars = prefix.chars();
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    prefix.len() <= 64 && chars.next().is_none_or(first) && chars.all(|c| first(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_chosen_by_name() {
        let shown = |pattern: &str| {
            let filter = Filter::new(pattern).unwrap();
            metrics::ALL.iter().filter(|figure| filter.shows(figure)).count()
        };
        assert_eq!(shown(""), metrics::ALL.len());
        assert_eq!(shown("^fs_opens_total$"), 1);
        assert_eq!(shown("nothing_like_this"), 0);
        let error = Filter::new("fs_(").unwrap_err();
        assert!(error.contains("fs_(") && !error.contains('\n'), "{error}");
        assert!(Filter::new(&"a".repeat(5000)).is_err());
        assert!(Filter::new("(a{1000}){1000}").is_err());
    }

    #[test]
    fn prefixes_are_names() {
        assert!(valid_prefix("runsc_") && valid_prefix("") && valid_prefix("_a:1"));
        assert!(
            !valid_prefix("1a") && !valid_prefix("a-b") && !valid_prefix("\u{e9}_") && !valid_prefix("a b")
        );
    }
}
