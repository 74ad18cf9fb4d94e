//! `ringfence port-forward`: connections on the host to a port of a container.

use crate::output::say;
use clap::Args;
use lifecycle::{Result, Settings, Source};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct PortForward {
    /// Connect to this Unix socket of the host, instead of listening on a port
    #[arg(long, value_name = "SOCKET")]
    pub(crate) stream: Option<PathBuf>,
    /// The container's name
    pub(crate) id: String,
    /// Port of 127.0.0.1 on the host and port inside, LOCAL:REMOTE; with --stream REMOTE alone. LOCAL may be 0: any free one
    #[arg(value_name = "LOCAL:REMOTE")]
    pub(crate) ports: String,
}

pub(crate) fn port_forward(settings: &Settings, args: &PortForward) -> Result<()> {
    let (source, port) = parse(args.stream.as_ref(), &args.ports)?;
    lifecycle::port_forward(settings, &args.id, &source, port, |local| {
        say(format!("forwarding 127.0.0.1:{local} to port {port} of {}", args.id))
    })
}

fn parse(stream: Option<&PathBuf>, ports: &str) -> Result<(Source, u16)> {
    let number = |text: &str| text.parse::<u16>().ok();
    let parsed = match (stream, ports.split_once(':')) {
        (Some(path), None) => number(ports).map(|port| (Source::Stream(path.clone()), port)),
        (None, Some((local, remote))) => {
            number(local).zip(number(remote)).map(|(local, remote)| (Source::Port(local), remote))
        }
        _ => None,
    };
    parsed.filter(|(_, port)| *port != 0).ok_or_else(|| {
        let form = if stream.is_some() { "REMOTE, the port inside" } else { "LOCAL:REMOTE, two ports" };
        format!("{ports:?} must be of the form {form}").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        assert_eq!(parse(None, "8080:80").unwrap(), (Source::Port(8080), 80));
        assert_eq!(parse(None, "0:80").unwrap(), (Source::Port(0), 80));
        let path = PathBuf::from("/s");
        assert_eq!(parse(Some(&path), "80").unwrap(), (Source::Stream(path.clone()), 80));
        for bad in ["80", "80:0", "x:80", "80:", ":80", "1:2:3", "70000:1", "1:-1"] {
            assert!(parse(None, bad).is_err(), "{bad}");
        }
        assert!(parse(Some(&path), "1:2").is_err());
    }
}
