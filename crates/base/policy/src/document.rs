//! A file in YAML or JSON as a tree whose nodes know their lines. JSON is read by the parser of YAML, of which it is
//! a part. Anchors, aliases and tags are refused: a small file would stand for a large one.

use crate::diagnostic::{Diagnostic, meant};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

/// Most lists and mappings inside each other.
const DEPTH_MAX: usize = 16;
/// Longest file, in bytes.
const SIZE_MAX: usize = 4 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// `plain`: without quotes.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    pub(crate) fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic { line: self.line, column: self.column, rule: None, message: message.into() }
    }

    /// A word or text. A number counts as its text.
    pub(crate) fn text(&self, what: &str) -> Result<&str, Diagnostic> {
        match &self.value {
            Value::Scalar { text, plain } if !(*plain && matches!(text.as_str(), "" | "~" | "null")) => {
                Ok(text)
            }
            _ => Err(self.error(format!("{what} is a text"))),
        }
    }

    pub(crate) fn flag(&self, what: &str) -> Result<bool, Diagnostic> {
        match &self.value {
            Value::Scalar { text, plain: true } if text == "true" => Ok(true),
            Value::Scalar { text, plain: true } if text == "false" => Ok(false),
            _ => Err(self.error(format!("{what} is true or false, without quotes"))),
        }
    }

    /// The elements of a list; a single value is a list of one.
    pub(crate) fn several(&self, what: &str) -> Result<&[Node], Diagnostic> {
        match &self.value {
            Value::List(list) if list.is_empty() => Err(self.error(format!("{what} is empty: leave it out"))),
            Value::List(list) => Ok(list),
            _ => Ok(std::slice::from_ref(self)),
        }
    }

    pub(crate) fn list(&self, what: &str) -> Result<&[Node], Diagnostic> {
        match &self.value {
            Value::List(list) => Ok(list),
            _ => Err(self.error(format!("{what} is a list"))),
        }
    }

    /// The entries of a mapping. Unknown and repeated keys go to `found`.
    pub(crate) fn entries<'n>(
        &'n self,
        what: &str,
        known: &[&'static str],
        found: &mut Vec<Diagnostic>,
    ) -> Vec<(&'static str, &'n Node)> {
        let Value::Map(map) = &self.value else {
            found.push(self.error(format!("{what} is a mapping with the keys {}", known.join(", "))));
            return Vec::new();
        };
        let mut entries: Vec<(&'static str, &Node)> = Vec::new();
        for (key, value) in map {
            let Value::Scalar { text, .. } = &key.value else {
                found.push(key.error(format!("the keys of {what} are words")));
                continue;
            };
            let Some(name) = known.iter().find(|known| *known == text) else {
                let meant = meant(text, known.iter().copied());
                found.push(key.error(format!("{what} has no key {text:?}{meant}")));
                continue;
            };
            if entries.iter().any(|(other, _)| other == name) {
                found.push(key.error(format!("{name} is there twice: write its values as a list")));
                continue;
            }
            entries.push((name, value));
        }
        entries
    }
}

/// The value of a key of [`Node::entries`].
pub(crate) fn get<'n>(entries: &[(&'static str, &'n Node)], key: &str) -> Option<&'n Node> {
    entries.iter().find(|(name, _)| *name == key).map(|(_, node)| *node)
}

/// Reads a file.
pub(crate) fn read(text: &str) -> Result<Node, Diagnostic> {
    let start = Node { line: 1, column: 1, value: Value::List(Vec::new()) };
    if text.len() > SIZE_MAX {
        return Err(start.error(format!("the file is longer than {} MiB", SIZE_MAX >> 20)));
    }
    if let Some(at) = text.find('\0') {
        let line = text[..at].matches('\n').count() as u32 + 1;
        return Err(Node { line, ..start }.error("a null character is no text"));
    }
    let mut reader = Reader { parser: Parser::new_from_str(text) };
    loop {
        match reader.next()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (Event::StreamEnd | Event::DocumentEnd, _) => return Err(start.error("the file is empty")),
            (event, span) => {
                let node = reader.node(event, span, 0)?;
                return reader.end().map(|()| node);
            }
        }
    }
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), Diagnostic> {
        let none = || at(&Marker::new(0, 1, 0), "the file ends too early");
        self.parser.next_event().ok_or_else(none)?.map_err(|error: ScanError| {
            at(error.marker(), format!("this is neither YAML nor JSON: {}", error.info()))
        })
    }

    /// Nothing comes behind the first document.
    fn end(&mut self) -> Result<(), Diagnostic> {
        loop {
            match self.next()? {
                (Event::DocumentEnd | Event::Nothing, _) => {}
                (Event::StreamEnd, _) => return Ok(()),
                (_, span) => return Err(at(&span.start, "the file has a second document, which is refused")),
            }
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Diagnostic> {
        let refuse = |message| Err(at(&span.start, message));
        if depth > DEPTH_MAX {
            return refuse("too many lists and mappings inside each other");
        }
        let (anchor, tag) = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
            Event::Alias(_) => return refuse("aliases (*name) are refused: write the value again"),
            _ => return refuse("a value is missing here"),
        };
        if anchor != 0 {
            return refuse(
                "anchors (&name) are refused: write the value again; quote a text that begins with &",
            );
        }
        if tag {
            return refuse("tags (!name) are refused; quote a text that begins with !");
        }
        let value = match event {
            Event::Scalar(text, style, ..) => {
                Value::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain }
            }
            Event::SequenceStart(..) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Value::List(list),
                        (event, span) => list.push(self.node(event, span, depth + 1)?),
                    }
                }
            }
            _ => {
                let mut map = Vec::new();
                loop {
                    let key = match self.next()? {
                        (Event::MappingEnd, _) => break Value::Map(map),
                        (event, span) => self.node(event, span, depth + 1)?,
                    };
                    let (event, span) = self.next()?;
                    map.push((key, self.node(event, span, depth + 1)?));
                }
            }
        };
        let at = at(&span.start, "");
        Ok(Node { line: at.line, column: at.column, value })
    }
}

fn at(mark: &Marker, message: impl Into<String>) -> Diagnostic {
    let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
    Diagnostic {
        line: number(mark.line()).max(1),
        column: number(mark.col()).saturating_add(1),
        rule: None,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_yaml_have_lines() {
        for text in [
            "{\n\t\"a\": [1,\n\t\t\"x\\/\\u00e9\"],\n\t\"b\": true\n}",
            "# c\na:\n  - 1\n  - 'x/é'\nb: true\n",
        ] {
            let node = read(text).unwrap();
            let mut found = Vec::new();
            let entries = node.entries("it", &["a", "b"], &mut found);
            assert!(found.is_empty(), "{found:?}");
            let list = get(&entries, "a").unwrap().list("a").unwrap();
            assert_eq!((list[0].text("it").unwrap(), list[1].text("it").unwrap()), ("1", "x/é"));
            assert!(list[1].line == 3 || list[1].line == 4);
            assert!(get(&entries, "b").unwrap().flag("b").unwrap());
        }
    }

    #[test]
    fn what_is_refused() {
        for (text, line, message) in [
            ("", 1, "empty"),
            ("a: 1\nb: &x 2\n", 2, "anchors"),
            ("a: 1\nb: *x\n", 2, ""),
            ("a: !!str 1\n", 1, "tags"),
            ("a: 1\n---\nb: 2\n", 2, "second document"),
            ("a: [1,\n", 0, "neither YAML nor JSON"),
            ("{\"a\": \"\u{0}\"}", 1, "null character"),
            ("[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]", 1, "too many"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(message), "{text}: {error}");
            assert!(line == 0 || error.line == line, "{text}: {error}");
        }
        let mut found = Vec::new();
        read("pth: 1\na: 1\na: 2\n").unwrap().entries("a rule", &["path", "a"], &mut found);
        assert_eq!(found.len(), 2);
        assert!(found[0].to_string().contains("did you mean path?"), "{}", found[0]);
        assert_eq!((found[1].line, found[1].column), (3, 1));
    }
}
