//! Log lines of all our processes, as text or as the JSON that container managers parse.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Forms of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `LEVEL time message`.
    #[default]
    Text,
    /// One object a line, with `level`, `msg` and `time`.
    Json,
}

/// Where a sandbox's processes log to: what they get as standard error.
#[derive(Debug)]
pub struct Sink {
    /// The file.
    pub fd: OwnedFd,
    /// The form of its lines.
    pub format: Format,
}

struct Logger {
    format: Format,
    /// Standard error when there is none.
    file: Option<File>,
    sites: Mutex<HashMap<Site, Window>>,
}

/// Where in the source a line comes from.
type Site = (Option<&'static str>, Option<u32>);

/// What one place in the source has logged lately. A guest can reach many of them as often as it likes.
struct Window {
    begun: Instant,
    lines: u32,
    dropped: u64,
}

/// Most lines of one place in so much time; debugging wants more of them.
const WINDOW: Duration = Duration::from_secs(10);
const MOST: u32 = 20;
const MOST_DEBUG: u32 = 2000;

impl Window {
    /// Whether one more line may be logged now, and how many have been dropped since the last that was.
    fn admit(&mut self, now: Instant, most: u32) -> Option<u64> {
        if now.saturating_duration_since(self.begun) >= WINDOW {
            self.begun = now;
            self.lines = 0;
        }
        if self.lines >= most {
            self.dropped += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts logging, warnings and worse, to `file` or to standard error. Later calls do nothing.
pub fn start(format: Format, file: Option<File>) {
    let logger = LOGGER.get_or_init(|| Logger { format, file, sites: Mutex::default() });
    if log::set_logger(logger).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// Opens a log file. Errors are lines for the user.
pub fn append(path: &Path) -> Result<File, String> {
    opened(OpenOptions::new().create(true).append(true), path)
}

/// The same for a file with a name that can be guessed, in a directory that others may write to. No link is followed
/// except those of /dev, as in `/dev/stderr`.
pub fn append_no_link(path: &Path) -> Result<File, String> {
    if path.parent() == Some(Path::new("/dev")) {
        return append(path);
    }
    opened(OpenOptions::new().create(true).append(true).custom_flags(libc::O_NOFOLLOW), path)
}

fn opened(how: &OpenOptions, path: &Path) -> Result<File, String> {
    how.open(path).map_err(|error| format!("log file {}: {error}", path.display()))
}

/// What is logged from now on: everything with `debug`, information with `strace`.
pub fn set_level(debug: bool, strace: bool) {
    log::set_max_level(match (debug, strace) {
        (true, _) => LevelFilter::Debug,
        (false, true) => LevelFilter::Info,
        (false, false) => LevelFilter::Warn,
    });
}

/// Longest message in characters.
const LONGEST: usize = 1000;

/// A text as it may be shown on a terminal: one line, not endless, no control characters. Parts of it may come from a
/// configuration.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == LONGEST {
            line += "...";
            break;
        }
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// One line in the JSON form.
pub fn json_line(level: &str, message: &str) -> String {
    let line = serde_json::json!({ "level": level, "msg": message, "time": timestamp() });
    format!("{line}\n")
}

impl Logger {
    /// Whether a line of this place is logged, and how many were not before it. What strace asked for always is.
    fn admit(&self, record: &Record<'_>) -> Option<u64> {
        if record.target() == "strace" {
            return Some(0);
        }
        let now = Instant::now();
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let window = sites.entry((record.file_static(), record.line())).or_insert_with(|| Window {
            begun: now,
            lines: 0,
            dropped: 0,
        });
        window.admit(now, if record.level() >= Level::Debug { MOST_DEBUG } else { MOST })
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let Some(dropped) = self.admit(record) else { return };
        let mut message = record.args().to_string();
        if dropped > 0 {
            message += &format!(" ({dropped} more lines like this one were not logged)");
        }
        let line = match self.format {
            Format::Text => {
                let text = one_line(&message);
                format!("{:.1} {} [{}] {text}\n", record.level(), timestamp(), std::process::id())
            }
            Format::Json => json_line(level_name(record.level()), &message),
        };
        // One write a line, so that lines of several threads and processes do not mix.
        let _ = match self.file.as_ref() {
            Some(mut file) => file.write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }

    fn flush(&self) {}
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug | Level::Trace => "debug",
    }
}

/// The current time in UTC, RFC 3339 with microseconds.
pub fn timestamp() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format_time(now.as_secs(), now.subsec_micros())
}

fn format_time(secs: u64, micros: u32) -> String {
    let (days, rest) = (secs / 86400, secs % 86400);
    // Civil date from days since 1970, by eras of 400 years that begin on a 1st of March.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{micros:06}Z")
}

/// Microseconds since 1970 of a time in the form of [`timestamp`].
pub fn parse_time(text: &str) -> Option<u64> {
    let mut numbers =
        text.strip_suffix('Z')?.split(['-', 'T', ':', '.']).map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let [year, month, day, h, m, s, micros] = [next()?, next()?, next()?, next()?, next()?, next()?, next()?];
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || h > 23 || m > 59 || s > 60 {
        return None;
    }
    // Years that begin on a 1st of March: the leap day is the last one.
    let (y, shifted) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (153 * shifted + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    Some((((days * 24 + h) * 60 + m) * 60 + s) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_logs_so_much_and_no_more() {
        let start = Instant::now();
        let mut w = Window { begun: start, lines: 0, dropped: 0 };
        assert!((0..MOST).all(|_| w.admit(start, MOST) == Some(0)));
        assert!((0..1000).all(|_| w.admit(start, MOST).is_none()));
        assert_eq!(w.admit(start + WINDOW, MOST), Some(1000));
        assert_eq!(w.admit(start + WINDOW, MOST), Some(0));
    }

    #[test]
    fn times_are_civil() {
        assert_eq!(format_time(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(format_time(951_782_400, 5), "2000-02-29T00:00:00.000005Z");
        assert_eq!(format_time(1_767_225_599, 999_999), "2025-12-31T23:59:59.999999Z");
    }

    #[test]
    fn times_are_read_back() {
        for secs in [0, 951_782_400, 951_868_800, 1_767_225_599, 1_767_225_600, 4_107_542_400] {
            assert_eq!(parse_time(&format_time(secs, 7)), Some(secs * 1_000_000 + 7));
        }
        for wrong in ["", "x", "2000-02-29", "2000-13-01T00:00:00.000000Z", "1969-12-31T23:59:59.000000Z"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn messages_are_one_line() {
        assert_eq!(one_line("a\n\0\x1b[2J\u{9b}ä"), "a\\n\\u{0}\\u{1b}[2J\\u{9b}ä");
        assert_eq!(one_line(&"x".repeat(5000)).len(), LONGEST + 3);
    }

    #[test]
    fn json_lines_are_whole() {
        let line = json_line("error", "a \"b\"\nc");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["msg"], "a \"b\"\nc");
        assert_eq!(line.matches('\n').count(), 1);
    }
}
