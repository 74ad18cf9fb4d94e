//! Values of flags.

use bundle::{IdRange, Overlay2};
use lifecycle::PassedFd;
use spec::{HostUds, Network};
use std::time::Duration;

pub(crate) fn overlay(text: &str) -> Result<Overlay2, String> {
    Overlay2::parse(text).map_err(|bundle::Error(message)| message)
}

/// Where a metric server listens.
pub(crate) fn address(text: &str) -> Result<String, String> {
    exporter::Address::parse(text).map(|_| text.into())
}

/// `auto` is what `false` is: an ordinary user has no other way.
pub(crate) fn rootless(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" | "auto" => Ok(false),
        _ => Err("use true, false or auto".into()),
    }
}

/// What programs can do with Unix sockets of the host.
pub(crate) fn host_uds(text: &str) -> Result<HostUds, String> {
    match text {
        "none" => Ok(HostUds::default()),
        "open" => Ok(HostUds { open: true, create: false }),
        "create" => Ok(HostUds { open: false, create: true }),
        "all" => Ok(HostUds { open: true, create: true }),
        _ => Err("use none, open, create or all".into()),
    }
}

/// `unix:/SOCKET[:/DESTINATION]`.
pub(crate) fn gofer(text: &str) -> Result<bundle::Gofer, String> {
    const DEFAULT: &str = "/gofer";
    let wrong =
        || "use unix:/PATH/OF/SOCKET or unix:/PATH/OF/SOCKET:/DESTINATION, absolute paths".to_string();
    let rest = text.strip_prefix("unix:").filter(|rest| rest.starts_with('/')).ok_or_else(wrong)?;
    let (socket, destination) = rest.split_once(':').unwrap_or((rest, DEFAULT));
    let name = destination.strip_prefix('/').map(|name| name.trim_matches('/')).unwrap_or_default();
    let odd = |part| !matches!(part, std::path::Component::Normal(_));
    if name.is_empty() || name.contains(':') || std::path::Path::new(name).components().any(odd) {
        return Err(format!(
            "the destination {destination:?} must be an absolute path other than /, without .. and without options"
        ));
    }
    Ok(bundle::Gofer { socket: socket.into(), destination: format!("/{name}") })
}

/// Most descriptors of a process of the sandbox, -1 for the caller's limit. The kernel inside has room for 8192 from the start.
pub(crate) fn descriptors(text: &str) -> Result<i64, String> {
    const LEAST: i64 = 10_000;
    match text.parse::<i64>() {
        Ok(number) if number == -1 || number >= LEAST => Ok(number),
        _ => Err(format!(
            "use -1 or {LEAST} and more: the kernel inside keeps thousands of the container's files open"
        )),
    }
}

/// `HERE:INSIDE`, two numbers of descriptors beyond the standard streams.
pub(crate) fn passed_fd(text: &str) -> Result<PassedFd, String> {
    let number = |text: &str| text.parse::<i32>().ok().filter(|fd| (3..64).contains(fd));
    let parsed = text
        .split_once(':')
        .and_then(|(outside, inside)| Some(PassedFd { outside: number(outside)?, inside: number(inside)? }));
    parsed.ok_or_else(|| "use HERE:INSIDE, two numbers of descriptors from 3 to 63".into())
}

/// `INSIDE HERE COUNT` as users or groups of a user namespace, with spaces, commas or colons between.
pub(crate) fn id_range(text: &str) -> Result<IdRange, String> {
    let numbers: Vec<Option<u32>> =
        text.split([' ', ',', ':']).filter(|word| !word.is_empty()).map(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        [Some(inside), Some(outside), Some(count)] if *count > 0 => {
            Ok(IdRange { inside: *inside, outside: *outside, count: *count })
        }
        _ => Err("use three numbers, INSIDE HERE COUNT, as \"0 100000 65536\"".into()),
    }
}

/// A flag of runsc or runc that is known, and refused whatever its value is.
pub(crate) fn refused(why: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |_| Err(why.into())
}

/// The same as [`interval`], or a number of seconds alone.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    interval(&if number { format!("{text}s") } else { text.to_string() })
}

pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Some(interval) if !interval.is_zero() => Ok(interval),
        _ => Err("use a number greater than zero and ms, s, m or h, as 500ms or 1m30s".into()),
    }
}

/// A time as Go writes it: numbers with units, one after the other.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut left = text;
    let mut all = Duration::ZERO;
    while !left.is_empty() {
        let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = left.split_at(digits);
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "\u{b5}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        all = all.checked_add(part)?;
        left = rest;
    }
    Some(all)
}

/// A number of bytes as runc takes it: with a unit of powers of 1024 (b, k, m, g, t, p, also as KB or KiB), or -1.
pub(crate) fn bytes(text: &str) -> Result<i64, String> {
    let wrong =
        || format!("{text:?} is no number of bytes; write for example 536870912 or 512M, or -1 for no limit");
    if let Ok(number) = text.parse::<i64>() {
        return if number < -1 { Err(wrong()) } else { Ok(number) };
    }
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let unit = unit.trim_start().to_ascii_lowercase();
    let power = match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit) {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * 1024f64.powi(power);
    if bytes < i64::MAX as f64 { Ok(bytes as i64) } else { Err(wrong()) }
}

/// A number of processors, not whole in general.
pub(crate) fn cpus(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.01..=4096.0).contains(&number) => Ok(number),
        _ => Err("use a number from 0.01 to 4096, as 1.5".into()),
    }
}

/// The most that a packet capture may write: one packet of the longest kind at least.
pub(crate) fn capture_size(text: &str) -> Result<u64, String> {
    const LEAST: i64 = 512 << 10;
    match bytes(text)? {
        size if size >= LEAST => Ok(size as u64),
        _ => Err("use 512k or more".into()),
    }
}

pub(crate) fn network(text: &str) -> Result<Network, String> {
    match text {
        "none" => Ok(Network::None),
        "sandbox" => Ok(Network::Sandbox),
        "host" => Ok(Network::Host { policed: false }),
        _ => Err("unknown mode; use none, host or sandbox".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gofers() {
        let of = |text| gofer(text).map(|g| (g.socket.to_string_lossy().into_owned(), g.destination));
        let is = |socket: &str, place: &str| Ok((socket.to_string(), place.to_string()));
        assert_eq!(of("unix:/run/a.sock"), is("/run/a.sock", "/gofer"));
        assert_eq!(of("unix:/run/a.sock:/data/in/"), is("/run/a.sock", "/data/in"));
        for wrong in [
            "/run/a.sock",
            "unix:run/a.sock",
            "tcp:/x",
            "unix:/a:/b/../c",
            "unix:/a:/b:/c",
            "unix:/a:/",
            "unix:/a:",
            "unix:/a:b",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_of_bytes() {
        for (text, bytes) in [
            ("-1", -1),
            ("0", 0),
            ("77", 77),
            ("50M", 50 << 20),
            ("1.5g", 3 << 29),
            ("2KiB", 2048),
            ("3 kb", 3072),
        ] {
            assert_eq!(super::bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "-2", "M", "5x", "1e9", "99999p", "-5M", "1..2k"] {
            assert!(super::bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, ms) in
            [("5s", 5000), ("1m30s", 90_000), ("1.5s", 1500), ("1h0m1s", 3_601_000), ("2000us", 2)]
        {
            assert_eq!(interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "0s", "5", "-1s", "s", "1x", "1s1", "1e9s", "1..5s", "99999999999999999999h"] {
            assert!(interval(text).is_err(), "{text}");
        }
        assert_eq!(seconds("5"), seconds("5s"));
        assert!(seconds("0").is_err() && seconds("").is_err());
    }
}
