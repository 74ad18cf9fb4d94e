//! The shim's log: lines into the FIFO `log` of its bundle, which containerd reads.

use log::{LevelFilter, Log, Metadata, Record};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

struct FifoLog(Mutex<File>);

impl Log for FifoLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = record.level().as_str().to_lowercase();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = rfc3339(now.as_secs(), now.subsec_nanos());
        let line = format!("time=\"{time}\" level={level} msg=\"{}\"\n", record.args());
        // While containerd restarts the FIFO has no reader; the line is lost then.
        let _ = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

static LOG: OnceLock<FifoLog> = OnceLock::new();

/// Starts logging; `RUST_LOG` may name another level than information.
pub(crate) fn start(debug: bool) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open("log")?;
    let named = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    let level = named.unwrap_or(LevelFilter::Info);
    log::set_max_level(if debug { level.max(LevelFilter::Debug) } else { level });
    let log = LOG.get_or_init(|| FifoLog(Mutex::new(file)));
    log::set_logger(log).map_err(|error| io::Error::other(error.to_string()))
}

/// A time in UTC.
fn rfc3339(seconds: u64, nanos: u32) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from March of year 0, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{nanos:09}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(rfc3339(seconds, 7), format!("{text}.000000007Z"));
        }
    }
}
