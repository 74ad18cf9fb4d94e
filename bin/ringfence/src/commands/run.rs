//! `ringfence run`: a container from an OCI bundle, in the foreground.

use crate::cli::{Global, Run};
use crate::{Failure, container};
use sandbox::state::{self, State};

pub(crate) fn run(global: &Global, args: &Run) -> Result<u8, Failure> {
    let signals = container::signals()?;
    let prepared = bundle::load(&args.bundle, &args.id, &container::options(global))?;
    let claim = state::claim(&container::state_dir(global), &args.id)?;
    let mut state = State {
        oci_version: "1.2.0".into(),
        id: args.id.clone(),
        status: "creating".into(),
        pid: std::process::id(),
        bundle: args.bundle.canonicalize()?,
        created: sandbox::logging::timestamp(),
    };
    claim.write(&state)?;
    container::run(global, prepared, &signals, "run", || {
        state.status = "running".into();
        if let Err(error) = claim.write(&state) {
            log::warn!("state of {}: {error}", state.id);
        }
    })
}
