//! The kernel object: what all tasks of a sandbox share.

use crate::bandwidth_timer::BandwidthTimer;
use crate::coverage::Coverage;
use crate::current::Current;
use crate::host_figures::HostFigures;
use crate::late_kills::LateKills;
use crate::load::Load;
use crate::meeting::Meeting;
use crate::namespace_caller::NamespaceCaller;
use crate::recycling::Recycling;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::Tree;
use caller::timer::TimerService;
use cgroup::Cgroup;
use container::{Container, Containers, Limits};
use futex_pi::PiTable;
use ktime::{Clock, Ktime};
use lock_order::{Condvar, Mutex, rank};
use mounts::FsTypes;
use nsproxy::{CgroupNamespace, Inums, Ipc, NsFs, NsProxy, Offsets, TimeNamespace, Uts, UtsNamespace, inum};
use pid::PidNamespace;
use platform::Platform;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use syscall_filter::Listeners;
use user_ns::UserNamespace;

/// si_code of signals that come from outside the sandbox; even pid 1 takes them.
pub const SI_HOST: i32 = libc::SI_KERNEL;

/// Mappings of the sentry for one guest thread with a process of its own: the stack, the signal stack, both with their guards, and
/// the slot. Measured: 4 for a thread, 6 for a process.
const TASK_MAPPINGS: u64 = 7;
/// Mappings of the sentry for all else.
const OTHER_MAPPINGS: u64 = 5000;
/// Most threads under Linux's default of 65,530 mappings.
const TASK_BOUND: u64 = (65_530 - OTHER_MAPPINGS) / TASK_MAPPINGS;

/// Kernel release shown to guests: the long-term one that the tests compare with.
pub const RELEASE: &str = "6.18.44-ringfence";
/// The same in the form of version 2.6, for UNAME26 of personality(2).
pub const RELEASE_26: &str = "2.6.78-ringfence";
/// Kernel version string shown to guests.
pub const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC Ringfence";

/// System calls as the crate above implements them.
pub trait SystemCalls: Send + Sync {
    /// Performs the call that the caller's registers ask for.
    fn dispatch(&self, c: &mut Current);
    /// As [`SystemCalls::dispatch`], without the stops of a traced thread.
    fn perform(&self, c: &mut Current);
    /// How often each system call that is not implemented was made, by number; without one those that Linux does not
    /// number either.
    fn missing(&self) -> Vec<(Option<usize>, u64)> {
        Vec::new()
    }
    /// Writes the core file of the process, which this signal is about to end; true when there is one then.
    fn dump_core(&self, c: &mut Current, info: &abi::SigInfo) -> bool {
        let _ = (c, info);
        false
    }
}

/// Makes a network namespace whose timers run on a timer service.
pub type MakeNet = Box<dyn FnOnce(&Arc<TimerService>) -> Arc<socket::NetNamespace>>;

/// What a kernel is made of.
pub struct Parts {
    /// The initial user namespace.
    pub user_ns: Arc<UserNamespace>,
    /// Runs guest code.
    pub platform: Arc<dyn Platform>,
    /// Performs system calls.
    pub calls: Arc<dyn SystemCalls>,
    /// The names that the first container starts with.
    pub uts: Uts,
    /// What its clocks are ahead of the host's.
    pub offsets: Offsets,
    /// What the sandbox may use.
    pub limits: Limits,
    /// Protocol families of socket(2).
    pub families: socket::Families,
    /// Makes the network namespace, with the kernel's timers.
    pub net: MakeNet,
    /// Where content of files in memory lives that programs map.
    pub memory: Arc<tmpfs::MemFiles>,
    /// What the host counts of the sandbox's processes.
    pub figures: HostFigures,
    /// The kernel's monotonic clock.
    pub clock: Clock,
    /// When the sandbox started; one that goes on from a checkpoint started before its clock did.
    pub boot: Ktime,
}

/// What all tasks share.
pub struct Kernel {
    /// Runs guest code.
    pub platform: Arc<dyn Platform>,
    /// Performs system calls.
    pub calls: Arc<dyn SystemCalls>,
    /// Processes, their relations, groups and sessions.
    pub tree: Mutex<Tree, { rank::TASKS }>,
    /// The container that the sandbox began with and ends with.
    pub first: Arc<Container>,
    /// The containers of the sandbox.
    pub containers: Containers,
    /// When the sandbox started.
    pub boot: Ktime,
    /// CLOCK_BOOTTIME at that moment; guests see the host's clocks.
    pub boot_ns: u64,
    /// Of a sandbox that goes on from a checkpoint: until when moments are told by another one of these.
    pub boots_before: OnceLock<Vec<(Ktime, u64)>>,
    /// Report every call to the platform's owner (strace).
    strace: AtomicBool,
    /// Trace sessions.
    pub trace: trace::Tracer,
    /// Policies.
    pub policies: enforce::Enforcer,
    /// CLOCK_REALTIME in nanoseconds at `boot`: what moments since then are told by (trace points).
    pub(crate) boot_realtime: i64,
    /// Processes ever made (/proc/stat).
    pub forks: AtomicU64,
    /// How often threads were interrupted in the program's code.
    pub interrupts: AtomicU64,
    /// Sleeps of threads that have left.
    pub(crate) past_sleeps: AtomicU64,
    /// Nanoseconds that threads which have ended waited for a processor, as far as that was asked.
    pub(crate) past_waits: AtomicU64,
    /// Load averages.
    load: Mutex<Load>,
    /// Values of /proc/sys that were set, by path below it.
    pub sysctls: Mutex<BTreeMap<&'static str, String>>,
    /// Resource usage has been requested: from now on the ends of processes are measured, which costs a hand-off.
    pub usage_wanted: AtomicBool,
    /// Queued signals and timers of each user.
    pub queued: Arc<signal::Queues>,
    /// The sandbox's own PID namespace: every process has a number in it.
    pub pids: Arc<PidNamespace>,
    /// The control group around those of all containers.
    pub cgroups: Arc<Cgroup>,
    /// Numbers of namespaces.
    pub inums: Inums,
    /// The last serial number of credentials.
    pub(crate) cred_serials: AtomicU64,
    /// The mount that namespaces are files of.
    pub nsfs: Arc<vfs::Mount>,
    /// Where content of files in memory lives that programs map.
    pub memory: Arc<tmpfs::MemFiles>,
    /// What the host counts of the sandbox's processes.
    pub figures: HostFigures,
    /// What programs asked for and did not get.
    pub coverage: Coverage,
    /// Files of memfd_create(2) and its like.
    pub memfds: Arc<tmpfs::Memfds>,
    /// Protocol families of socket(2).
    pub families: socket::Families,
    /// Keys and keyrings.
    pub keys: Arc<keys::Keys>,
    /// The log of syslog(2) and /dev/kmsg.
    pub log: Arc<kmsg::Log>,
    /// What Landlock's rules take.
    pub landlock: Arc<landlock::Pool>,
    /// What address spaces share.
    pub spaces: Arc<mm::AddressSpaces>,
    /// What the file layer shares.
    pub vfs: Arc<vfs::Vfs>,
    /// File system types of mount(2).
    pub fs_types: FsTypes<dyn NamespaceCaller>,
    /// What the seccomp(2) filters of its threads take.
    pub(crate) filters: Arc<seccomp::Filters>,
    /// Supervisors of these filters.
    pub listeners: Arc<Listeners>,
    /// Priority-inheritance futexes that threads wait for.
    pub(crate) pi: Arc<PiTable<Task>>,
    /// Most threads there may be (kernel.threads-max), and the most that the host bears.
    pub most_tasks: AtomicU64,
    /// See `most_tasks`.
    pub task_bound: AtomicU64,
    /// The sentry's threads without a task, most recent last. They end with the kernel.
    pub(crate) idle: Mutex<Vec<SyncSender<Current>>>,
    /// What programs learn of checkpoints.
    pub notices: Arc<crate::notices::Notices>,
    /// The host name that the specification of the first container gives.
    pub given_name: String,
    /// A standstill of all threads.
    pub(crate) meeting: Mutex<Option<Arc<Meeting<Task, Current>>>>,
    pub(crate) bandwidth: BandwidthTimer,
    pub(crate) late_kills: LateKills,
    /// Host processes of programs that have ended.
    pub(crate) recycling: Recycling,
    pub(crate) tasks_alive: Mutex<usize>,
    pub(crate) tasks_cv: Condvar,
}

/// The time namespace of a container: the initial one where its clocks show what the host's do.
pub(crate) fn time_namespace(
    inums: &Inums,
    user_ns: &Arc<UserNamespace>,
    offsets: Offsets,
) -> Arc<TimeNamespace> {
    if offsets == Offsets::default() {
        TimeNamespace::initial(inum::TIME, user_ns.clone())
    } else {
        TimeNamespace::shifted(inums.next(), user_ns.clone(), offsets)
    }
}

/// CLOCK_BOOTTIME now: the uptime that guests see.
pub fn uptime_ns() -> u64 {
    hostsys::clock::gettime_ns(libc::CLOCK_BOOTTIME).unwrap_or(0) as u64
}

/// CLOCK_REALTIME in nanoseconds.
pub(crate) fn realtime_ns() -> i64 {
    hostsys::clock::gettime_ns(libc::CLOCK_REALTIME).unwrap_or(0)
}

impl Kernel {
    /// The kernel's monotonic clock.
    pub fn clock(&self) -> &Clock {
        &self.vfs.resources.clock
    }

    /// A number for credentials that a task is about to get, see [`rights::Credentials::serial`].
    pub(crate) fn next_cred_serial(&self) -> u64 {
        self.cred_serials.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A kernel without tasks.
    pub fn new(parts: Parts) -> Arc<Kernel> {
        let Parts {
            user_ns,
            platform,
            calls,
            uts,
            offsets,
            limits,
            families,
            net,
            memory,
            figures,
            clock,
            boot,
        } = parts;
        let given_name = uts.nodename.clone();
        let memfds = tmpfs::Memfds::new(&memory);
        let device_numbers = memory.device_numbers.clone();
        let memory_size = limits.memory();
        let quotas = caller::Quotas::new(memory_size);
        let pids = PidNamespace::root(inum::HIDDEN, user_ns.clone());
        let fifo = ipc::pipe::fifo::opener();
        let vfs = vfs::Vfs::with_devices(quotas, user_ns.clone(), device_numbers, fifo, clock);
        let cgroups = Cgroup::topmost(clock);
        let inums = Inums::default();
        let time = time_namespace(&inums, &user_ns, offsets);
        let namespaces = NsProxy {
            uts: UtsNamespace::new(inum::UTS, user_ns.clone(), uts, None),
            ipc: Ipc::new(inum::IPC, &user_ns, &memfds),
            net: net(&vfs.resources.timers),
            pid_for_children: pids.child(inum::PID, user_ns.clone(), None).unwrap_or_else(|_| pids.clone()),
            cgroup: CgroupNamespace::new(inum::CGROUP, user_ns.clone(), cgroups.of_container(), None),
            time_for_children: time.clone(),
            time,
        };
        let (first, containers) = Containers::first(namespaces, limits);
        let log = Arc::new(kmsg::Log::new(clock));
        vfs.devices.register_char("mem", 1, 11..=11, Arc::new(kmsg::opener(log.clone())));
        log.print(5, &format!("Linux version {RELEASE} {VERSION}"));
        log.print(6, "Command line: quiet");
        log.print(6, &format!("Memory: {}K available", memory_size / 1024));
        Arc::new(Kernel {
            platform,
            calls,
            tree: Mutex::new(Tree::default()),
            first,
            containers,
            boot,
            boots_before: OnceLock::new(),
            boot_ns: uptime_ns().saturating_sub(clock.now().since(boot).as_nanos() as u64),
            strace: AtomicBool::new(false),
            trace: trace::Tracer::new(&platform::NATIVE_CALLS),
            policies: enforce::Enforcer::new(vfs.resources.policed.clone()),
            boot_realtime: realtime_ns().saturating_sub(clock.now().since(boot).as_nanos() as i64),
            forks: AtomicU64::new(0),
            interrupts: AtomicU64::new(0),
            past_sleeps: AtomicU64::new(0),
            past_waits: AtomicU64::new(0),
            load: Mutex::new(Load::new(clock.now())),
            sysctls: Mutex::default(),
            usage_wanted: AtomicBool::new(false),
            queued: Arc::default(),
            pids,
            cgroups,
            inums,
            cred_serials: AtomicU64::new(0),
            memory,
            figures,
            coverage: Coverage::default(),
            memfds,
            families,
            keys: keys::Keys::new(clock),
            log,
            landlock: Arc::default(),
            spaces: Arc::default(),
            nsfs: NsFs::mount(&vfs),
            vfs,
            fs_types: FsTypes::default(),
            filters: Arc::default(),
            listeners: Arc::default(),
            pi: Arc::default(),
            most_tasks: AtomicU64::new(TASK_BOUND),
            task_bound: AtomicU64::new(TASK_BOUND),
            idle: Mutex::default(),
            notices: Arc::default(),
            given_name,
            meeting: Mutex::default(),
            bandwidth: BandwidthTimer::default(),
            late_kills: LateKills::default(),
            recycling: Recycling::default(),
            tasks_alive: Mutex::new(0),
            tasks_cv: Condvar::new(),
        })
    }

    /// Whether every call is logged from now on, those included that the platform answers by itself otherwise.
    pub fn set_strace(&self, on: bool) {
        self.strace.store(on, Ordering::Relaxed);
        self.trace.set_logged(on);
        self.update_reporting();
    }

    /// Has all threads look soon at which calls the platform may answer by itself.
    pub fn update_reporting(&self) {
        for task in self.tasks() {
            task.interrupt_guest();
        }
    }

    /// Whether calls that the platform may answer by itself are to be reported.
    pub(crate) fn reports_all(&self) -> bool {
        self.strace.load(Ordering::Relaxed) || self.trace.wants_native_calls()
    }

    /// How often threads have slept in the kernel.
    pub fn sleeps(&self) -> u64 {
        let now: u64 = self.tasks().iter().map(|t| t.waiter.sleeps()).sum();
        now + self.past_sleeps.load(Ordering::Relaxed)
    }

    /// Nanoseconds that threads were ready and waited for a processor. Of threads that have ended it has what was known when this
    /// was last asked.
    pub fn run_delay(&self) -> u64 {
        let tasks = self.tasks();
        let (tasks, tids): (Vec<_>, Vec<i32>) =
            tasks.iter().filter_map(|task| Some((task, task.guest_thread()?))).unzip();
        let times = self.figures.all_run_times(&tids).unwrap_or_default();
        for (task, time) in tasks.iter().zip(times) {
            if let Some(time) = time {
                task.waited.fetch_max(time.waited, Ordering::Relaxed);
            }
        }
        let now: u64 = tasks.iter().map(|task| task.waited.load(Ordering::Relaxed)).sum();
        now + self.past_waits.load(Ordering::Relaxed)
    }

    /// How many threads run, and how many there are.
    pub fn running(&self) -> (usize, usize) {
        let tasks = self.tasks();
        (tasks.iter().filter(|t| !t.is_sleeping()).count(), tasks.len())
    }

    /// Nanoseconds of user and system time of everything that has run.
    pub fn processor_time(&self) -> (u64, u64) {
        let nodes: Vec<_> = {
            let t = self.tree.lock();
            t.nodes().map(|n| (n.group.clone(), n.zombie().map(|z| z.usage))).collect()
        };
        let (mut user, mut sys) = (0, 0);
        for (group, zombie) in nodes {
            let (u, s) = match zombie {
                Some(z) => (z.utime, z.stime),
                None => group.cpu_times(),
            };
            let gone = *group.usage.lock();
            user += u + gone.child_utime;
            sys += s + gone.child_stime;
        }
        (user, sys)
    }

    /// Brings the load averages up to date; the thread that asks does not count as ready.
    pub fn load_averages(&self) -> [f64; 3] {
        let now = self.clock().now();
        if let Some(fresh) = self.load.lock().fresh(now) {
            return fresh;
        }
        let (user, sys) = self.processor_time();
        let (ready, processors) = (self.running().0.saturating_sub(1), self.first.limits().allowed().count());
        let mut load = self.load.lock();
        load.fresh(now).unwrap_or_else(|| load.step(now, user + sys, ready, processors))
    }

    /// All live threads.
    pub fn tasks(&self) -> Vec<Arc<Task>> {
        self.tree.lock().tasks().cloned().collect()
    }

    /// All processes, zombies included.
    pub fn groups(&self) -> Vec<Arc<ThreadGroup>> {
        self.tree.lock().nodes().map(|n| n.group.clone()).collect()
    }

    /// The thread with this id.
    pub fn task(&self, tid: i32) -> Option<Arc<Task>> {
        self.tree.lock().task(tid).cloned()
    }

    /// The process with this id, zombies included.
    pub fn group(&self, tgid: i32) -> Option<Arc<ThreadGroup>> {
        self.tree.lock().node(tgid).map(|n| n.group.clone())
    }

    /// CLOCK_BOOTTIME in nanoseconds of a moment since the start.
    pub fn boottime_of(&self, t: Ktime) -> u64 {
        let before = self.boots_before.get().map(Vec::as_slice).unwrap_or_default();
        let of_then = before.iter().find(|(until, _)| t <= *until).map(|(_, boot_ns)| *boot_ns);
        of_then.unwrap_or(self.boot_ns).saturating_add(t.since(self.boot).as_nanos() as u64)
    }

    /// Device number and foreground process group of a session's controlling terminal.
    pub fn terminal_of(&self, sid: i32) -> Option<(u64, i32)> {
        let tty = self.tree.lock().terminal(sid).cloned()?;
        Some(tty.device_and_foreground())
    }

    /// Waits until the first container's first process has ended; gives its wait status.
    pub fn wait_finished(&self) -> i32 {
        self.first.wait_finished()
    }

    /// Waits until some thread ends; false when the time is up. It may return early.
    pub(crate) fn wait_for_an_end(&self, deadline: Instant) -> bool {
        let mut alive = self.tasks_alive.lock();
        let soon = Instant::now() + Duration::from_millis(20);
        self.tasks_cv.wait_until(&mut alive, soon.min(deadline));
        Instant::now() < deadline
    }

    /// Counts a thread that is about to start; false when there are too many.
    pub(crate) fn thread_starts(&self) -> bool {
        let mut alive = self.tasks_alive.lock();
        let room = (*alive as u64) < self.most_tasks.load(Ordering::Relaxed);
        *alive += usize::from(room);
        room
    }

    /// Whether no thread more may start. Processes that have not been waited for count as well.
    pub(crate) fn is_full(&self) -> bool {
        let unreaped = self.tree.lock().unreaped();
        (*self.tasks_alive.lock() + unreaped) as u64 >= self.most_tasks.load(Ordering::Relaxed)
    }

    /// The host lets the sentry have so many mappings. Each thread of the sentry takes some, and one that gets none is the
    /// sentry's end.
    pub fn bound_tasks(&self, mappings: u64) {
        let bound = (mappings.saturating_sub(OTHER_MAPPINGS) / TASK_MAPPINGS).clamp(100, 1 << 20);
        self.task_bound.store(bound, Ordering::Relaxed);
        self.most_tasks.store(bound, Ordering::Relaxed);
    }

    pub(crate) fn thread_ended(&self) {
        let mut a = self.tasks_alive.lock();
        *a -= 1;
        self.tasks_cv.notify_all();
    }
}
