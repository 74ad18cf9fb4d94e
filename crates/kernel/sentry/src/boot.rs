//! From a specification to the exit status of its first process.

use crate::control::Control;
use crate::errors::other;
use crate::fds::{Fds, control_group};
use crate::host_side::HostSide;
use crate::image::Image;
use crate::pod::Pod;
use crate::running::OnReady;
use crate::{links, tracing, wire};
use container::Limits;
use hostlink::CaptureFile;
use hostsys::fanotify::Group;
use spec::{SandboxSpec, StartError};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::OwnedFd;
use task::Kernel;

/// Descriptors of the sandbox's network mode.
#[derive(Default)]
pub struct NetworkFiles {
    /// Leads to the network gofer of host mode.
    pub gofer: Option<OwnedFd>,
    /// What `host_interfaces::take_over` made, unless the interfaces are only shown.
    pub links: Vec<OwnedFd>,
}

/// Builds a container and runs it to its end; gives the wait status of its first process, which
/// waits for [`Running::start`](crate::Running::start). `network` is what the network mode takes, `watcher` what directories of
/// the host are watched with if it had to be made before.
pub fn run(
    spec: SandboxSpec,
    fds: Vec<OwnedFd>,
    host: HostSide,
    network: NetworkFiles,
    watcher: Option<Group>,
    on_ready: OnReady,
) -> Result<i32, StartError> {
    let mut fds = Fds::new(fds);
    let limits = limits(&spec, &mut fds)?;
    let image = Image::open(&spec, &mut fds, &*host.platform)?;
    let clock = image.as_ref().map_or_else(Default::default, |image| image.state.kernel.clock());
    let kernel = wire::kernel(&spec, host, limits, network.gofer, clock)?;
    capture(&kernel, &spec, &mut fds)?;
    let coverage = spec.coverage.map(|fd| fds.take(fd)).transpose()?;
    let pod = Pod::new(&kernel.vfs.resources.device_numbers, watcher);
    links::attach(&kernel, &pod, spec.interfaces.clone(), network.links)?;
    for traced in spec.trace.clone() {
        let its = traced.fds.iter().map(|index| fds.take(*index)).collect::<Result<_, _>>()?;
        tracing::create(&kernel, traced.session, its, false)?;
    }
    if let Some(image) = image {
        kernel.notices.restoring();
        pod.await_containers(image);
    }
    let control = Control::build(&kernel, kernel.first.clone(), &spec, fds, pod)?;
    let console = control.console.clone();
    on_ready(control.clone());
    let status = kernel.wait_finished();
    links::close(&control.pod);
    kernel.shutdown();
    tracing::end(&kernel);
    control.changes.write_back_at_end();
    if let Some(c) = console {
        c.finish();
    }
    let refusals = crate::describe::refusals(&kernel);
    for refused in &refusals {
        log::debug!("{}: {} was asked for {} times", refused.kind, refused.what, refused.count);
    }
    if let Some(file) = coverage
        && let Err(error) = serde_json::to_writer(BufWriter::new(File::from(file)), &refusals)
    {
        log::warn!("coverage: {error}");
    }
    Ok(status)
}

/// The host's memory and processors, and the container's control group there.
fn limits(spec: &SandboxSpec, fds: &mut Fds) -> Result<Limits, StartError> {
    let files = control_group(spec, fds)?;
    let online = abi::CpuMask::parse_list(&spec.processors).unwrap_or_default();
    let processors = container::Processors::new(online, hostsys::cpu::allowed());
    Ok(Limits::new(hostsys::clock::total_memory(), processors, files))
}

/// Writes packets to a file, if the specification wants that.
fn capture(kernel: &Kernel, spec: &SandboxSpec, fds: &mut Fds) -> Result<(), StartError> {
    let Some(wanted) = spec.capture else { return Ok(()) };
    let to = CaptureFile { file: fds.take(wanted.fd)?, snaplen: wanted.snaplen, most: wanted.most };
    hostlink::capture(kernel.first.namespaces.net.stack(), to)
        .map_err(|error| other(format!("packet capture: {error}")))
}
