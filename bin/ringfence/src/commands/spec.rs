//! `ringfence spec`: writes a config.json to start from.

use clap::Args;
use lifecycle::Result;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Spec {
    /// Directory to write config.json to
    #[arg(long, short = 'b', value_name = "DIR", default_value = ".")]
    pub(crate) bundle: PathBuf,
    /// Working directory of the process
    #[arg(long, default_value = "/")]
    pub(crate) cwd: String,
    /// For an ordinary user: a user namespace in which the caller is root
    #[arg(long)]
    pub(crate) rootless: bool,
    /// The process [default: sh]
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) args: Vec<String>,
}

pub(crate) fn spec(args: &Spec) -> Result<()> {
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
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(format!("{} exists already; remove it first", path.display()).into())
        }
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}
