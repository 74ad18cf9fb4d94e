//! The report of a sentry that dies: what is known from the start, and what pid 1 adds. See `hostsys::crash`.

use spec::SandboxSpec;
use std::os::fd::OwnedFd;

/// The first line of a report.
const TITLE: &str = "Ringfence crash report";

/// The line that tells the build of the program.
pub fn build_line(id: Option<&str>) -> String {
    format!("build: {}", id.unwrap_or("unknown"))
}

/// Has this process write a report when it dies.
pub(crate) fn report_to(file: OwnedFd, spec: &SandboxSpec, build: Option<&str>) {
    let system = rustix::system::uname();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let head = format!(
        "{TITLE}\nversion: {}\n{}\nhost: {} {}\nplatform: {:?}\nnetwork: {:?}\ncontainer: {}\nstarted: {}\n\
         processors: {}\nmemory of the host: {} bytes\nlimit on descriptors: {}\n",
        env!("CARGO_PKG_VERSION"),
        build_line(build),
        system.release().to_string_lossy(),
        system.version().to_string_lossy(),
        spec.platform,
        spec.network,
        spec.id,
        crate::logging::timestamp(),
        hostsys::clock::processors(),
        hostsys::clock::total_memory(),
        limit.map_or("none".into(), |limit| limit.to_string()),
    );
    if let Err(error) = hostsys::crash::report_to(file, head) {
        log::warn!("no report will be written if the sandbox's kernel dies: {error}");
    }
}

/// What pid 1 adds about the signal that has ended the sentry; nothing when it was ended on purpose.
pub(crate) fn end_by(signo: i32) -> Option<String> {
    let why = match signo {
        libc::SIGKILL => return None,
        libc::SIGSYS => {
            ": a host call that the sentry's filter does not allow; the host's kernel log names it"
        }
        _ => "",
    };
    let name = hostsys::crash::signal_name(signo).map_or_else(String::new, |name| format!(" ({name})"));
    Some(format!("{TITLE}: pid 1 of the sandbox\nthe sentry was ended by signal {signo}{name}{why}\n"))
}
