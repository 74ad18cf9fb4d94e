//! The flame graph: a tree of the stacks, drawn as rectangles. The width of a rectangle is its share of the samples.
//!
//! One self-contained SVG file. Without scripts it shows everything, each frame's figures as a tooltip; its own
//! script adds zooming into a frame and searching. Every text is escaped.

use crate::stacks::{Kind, Label, Profile, clean};
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
/// Height of a frame.
const ROW: usize = 17;
/// Left and right.
const MARGIN: f64 = 10.0;
/// Space for the title and for the line below.
const TOP: usize = 52;
const BOTTOM: usize = 30;
/// Narrower frames are left out.
const NARROWEST: f64 = 0.1;
/// Width of a letter.
const LETTER: f64 = 7.0;
/// Deeper frames are left out: they are past the longest chain the kernel records, two sides together.
const DEEPEST: usize = 600;

#[derive(Default)]
struct Node<'a> {
    count: u64,
    children: BTreeMap<&'a Label, Node<'a>>,
}

impl Profile {
    /// A flame graph: one SVG file without references to anything else.
    pub fn flame_graph(&self, title: &str) -> String {
        draw(self, &clean(title))
    }
}

fn draw(profile: &Profile, title: &str) -> String {
    let mut root = Node::default();
    for (stack, count) in &profile.stacks {
        root.count += count;
        let mut node = &mut root;
        for label in stack.iter().take(DEEPEST) {
            node = node.children.entry(label).or_default();
            node.count += count;
        }
    }
    let all = Label { kind: Kind::Group, text: "all".into() };
    let scale = (WIDTH - 2.0 * MARGIN) / root.count.max(1) as f64;
    let rows = depth(&root, scale);
    let height = TOP + rows * ROW + BOTTOM;
    let mut out = String::new();
    let _ = write!(
        out,
        r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="monospace" font-size="12">
<style>.f:hover rect{{stroke:#000;stroke-width:0.7}} .f text{{pointer-events:none}} .b{{cursor:pointer}}</style>
<rect width="100%" height="100%" fill="#f8f8f8"/>
<text x="{middle}" y="24" font-size="16" text-anchor="middle">{title}</text>
<text x="{middle}" y="42" text-anchor="middle" fill="#555">{summary}</text>
<text id="reset" class="b" x="{MARGIN}" y="24" visibility="hidden">Reset zoom</text>
<text id="search" class="b" x="{right}" y="24" text-anchor="end">Search</text>
<text id="line" x="{MARGIN}" y="{line}"> </text>
<text id="found" x="{right}" y="{line}" text-anchor="end"> </text>
<g id="frames" data-total="{total}">
"##,
        middle = WIDTH / 2.0,
        right = WIDTH - MARGIN,
        line = height - 10,
        title = escaped(title),
        summary = escaped(&summary(profile)),
        total = root.count,
    );
    let mut drawing = Drawing { out, scale, total: root.count.max(1), bottom: TOP + rows * ROW };
    drawing.node(&all, &root, 0, 0);
    let mut out = drawing.out;
    let _ = write!(out, "</g>\n<script><![CDATA[\n{}]]></script>\n</svg>\n", include_str!("flame.js"));
    out
}

/// Rows that will be drawn.
fn depth(node: &Node<'_>, scale: f64) -> usize {
    let children = node.children.values().filter(|child| child.count as f64 * scale >= NARROWEST);
    1 + children.map(|child| depth(child, scale)).max().unwrap_or(0)
}

fn summary(profile: &Profile) -> String {
    let lost = if profile.lost > 0 { format!(", {} records lost", profile.lost) } else { String::new() };
    format!(
        "{} samples (guest {}, sentry {}) in {:.1} s, {} in a second on each processor{lost}",
        profile.guest + profile.sentry,
        profile.guest,
        profile.sentry,
        profile.took.as_secs_f64(),
        profile.frequency
    )
}

struct Drawing {
    out: String,
    scale: f64,
    total: u64,
    bottom: usize,
}

impl Drawing {
    fn node(&mut self, label: &Label, node: &Node<'_>, before: u64, level: usize) {
        let width = node.count as f64 * self.scale;
        if width < NARROWEST && level > 0 {
            return;
        }
        let (x, y) = (MARGIN + before as f64 * self.scale, self.bottom - (level + 1) * ROW);
        let name = escaped(&label.text);
        let share = node.count as f64 * 100.0 / self.total as f64;
        let _ = writeln!(
            self.out,
            r#"<g class="f b" data-x="{before}" data-n="{count}"><title>{name}: {count} samples, {share:.1}% ({whose})</title><rect x="{x:.1}" y="{y}" width="{width:.1}" height="{height}" rx="1" fill="{fill}"/><text x="{tx:.1}" y="{ty}">{fitting}</text></g>"#,
            count = node.count,
            whose = whose(label.kind),
            height = ROW - 1,
            fill = fill(label),
            tx = x + 3.0,
            ty = y + 12,
            fitting = escaped(&fitting(&label.text, width)),
        );
        let mut before = before;
        for (label, child) in &node.children {
            self.node(label, child, before, level + 1);
            before += child.count;
        }
    }
}

fn whose(kind: Kind) -> &'static str {
    match kind {
        Kind::Group => "all of it",
        Kind::Guest => "guest",
        Kind::Sentry => "sentry",
        Kind::Stub => "stub",
        Kind::Kernel => "host kernel",
    }
}

/// A colour for the kind of code, in a shade by its name.
fn fill(label: &Label) -> String {
    let (hue, saturation, light) = match label.kind {
        Kind::Group => (0, 0, 82),
        Kind::Guest => (95, 55, 64),
        Kind::Sentry => (208, 62, 70),
        Kind::Stub => (285, 35, 74),
        Kind::Kernel => (25, 82, 66),
    };
    let shade = label.text.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("hsl({},{saturation}%,{}%)", hue + shade % 12, light + (shade >> 8) % 10)
}

/// As much of a name as fits.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    if room < 3 {
        String::new()
    } else if name.chars().count() <= room {
        name.to_string()
    } else {
        name.chars().take(room - 2).chain("..".chars()).collect()
    }
}

/// Text for XML, without the characters that may not be in it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
