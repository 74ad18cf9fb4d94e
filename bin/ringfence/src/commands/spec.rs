//! `ringfence spec`: writes a config.json to start from; `ringfence features`: what a config.json may ask for.

use crate::cli::Spec;
use crate::{Failure, say};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

pub(crate) fn run(args: &Spec) -> Result<u8, Failure> {
    let path = args.bundle.join(bundle::CONFIG_FILE);
    let command = if args.args.is_empty() { vec!["sh".into()] } else { args.args.clone() };
    let config = match args.rootless {
        true => {
            let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            bundle::template_rootless(&command, &args.cwd, uid, gid)
        }
        false => bundle::template(&command, &args.cwd),
    };
    let mut text = serde_json::to_string_pretty(&config)?;
    text.push('\n');
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    match file.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(format!("{} exists already; remove it first", path.display()).into())
        }
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}

pub(crate) fn features() -> Result<u8, Failure> {
    say(serde_json::to_string_pretty(&bundle::features())?)?;
    Ok(0)
}
