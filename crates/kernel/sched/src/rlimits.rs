//! Resource limits of a process. See getrlimit(2).

use abi::libc;

/// How many resources there are (RLIM_NLIMITS).
const COUNT: usize = 16;

/// Soft and hard limit of each resource, by RLIMIT_*. `u64::MAX` is RLIM_INFINITY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rlimits([(u64, u64); COUNT]);

impl Rlimits {
    /// No limits at all.
    pub const UNLIMITED: Rlimits = Rlimits([(u64::MAX, u64::MAX); COUNT]);

    /// Linux's defaults for init, on a machine that has room for so many processes.
    pub fn of_init(processes: u64) -> Rlimits {
        const INF: u64 = u64::MAX;
        let mut limits = Rlimits::UNLIMITED;
        for (resource, soft, hard) in [
            (libc::RLIMIT_STACK, 8 << 20, INF),
            (libc::RLIMIT_CORE, 0, INF),
            (libc::RLIMIT_NPROC, processes, processes),
            (libc::RLIMIT_NOFILE, 1024, 1 << 20),
            (libc::RLIMIT_MEMLOCK, 8 << 20, 8 << 20),
            (libc::RLIMIT_SIGPENDING, processes, processes),
            (libc::RLIMIT_MSGQUEUE, 819_200, 819_200),
            (libc::RLIMIT_NICE, 0, 0),
            (libc::RLIMIT_RTPRIO, 0, 0),
        ] {
            limits.set(resource as i32, (soft, hard));
        }
        limits
    }

    /// Soft and hard limit; `None` for a resource that does not exist.
    pub fn get(&self, resource: i32) -> Option<(u64, u64)> {
        self.0.get(usize::try_from(resource).ok()?).copied()
    }

    /// The soft limit; none for a resource that does not exist.
    pub fn soft(&self, resource: i32) -> u64 {
        self.get(resource).map_or(u64::MAX, |(soft, _)| soft)
    }

    /// Changes soft and hard limit of a resource that exists.
    pub fn set(&mut self, resource: i32, limit: (u64, u64)) {
        if let Some(slot) = usize::try_from(resource).ok().and_then(|r| self.0.get_mut(r)) {
            *slot = limit;
        }
    }

    /// All of them, in order of RLIMIT_*.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_that_do_not_exist_have_no_limit() {
        let mut l = Rlimits::of_init(1024);
        assert_eq!((l.soft(libc::RLIMIT_NPROC as i32), l.get(16), l.soft(-1)), (1024, None, u64::MAX));
        l.set(16, (0, 0));
        assert_eq!((l, l.iter().count()), (Rlimits::of_init(1024), 16));
    }
}
