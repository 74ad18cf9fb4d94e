//! Address spaces that are saved and restored, on each platform.

use abi::PAGE_SIZE as PAGE;
use hostsys::page_file::PageFile;
use image::PageSource;
use mm::{AddressSpaces, MapArgs, MemoryMap, MemoryState, Mm, Presence, Restorer, Saver, SharedState};
use platform::{Context, Platform, Spawn};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use vfs::OpenFile;
use vfs::testing::TestCaller;

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANON: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

fn ptrace() -> Arc<dyn Platform> {
    ptrace::Ptrace::new().unwrap_or_else(|e| panic!("{e}"))
}

fn systrap() -> Arc<dyn Platform> {
    systrap::Systrap::new().unwrap_or_else(|e| panic!("{e}"))
}

/// A process without a program.
struct Process {
    ctx: Box<dyn Context>,
    mm: Arc<Mm>,
}

impl Process {
    fn new(platform: &Arc<dyn Platform>, all: &Arc<AddressSpaces>) -> Process {
        let ctx = platform.new_space().unwrap();
        let limits = platform.limits();
        let mut map = MemoryMap::new(limits.min, limits.max);
        map.mmap_base = limits.max / 2 / PAGE * PAGE;
        let mm = Mm::new(all, ctx.space(), map, user_ns::UserNamespace::initial());
        Process { ctx, mm }
    }

    fn settled<T>(&mut self, f: impl FnOnce(&Mm, &mut dyn Context) -> abi::Result<T>) -> T {
        let done = f(&self.mm, self.ctx.as_mut()).unwrap();
        self.ctx.flush().unwrap();
        self.mm.settle();
        done
    }

    fn map(&mut self, pages: u64, prot: i32, flags: i32, file: Option<&Arc<OpenFile>>) -> u64 {
        let args = MapArgs { addr: 0, len: pages * PAGE, prot, flags, file: file.cloned(), offset: 0 };
        self.settled(|mm, ctx| mm.mmap(&TestCaller::root(), ctx, &args))
    }

    fn advise(&mut self, addr: u64, pages: u64, advice: i32) {
        self.settled(|mm, ctx| {
            mm.before_advice(&TestCaller::root(), ctx, addr, addr + pages * PAGE, advice)?;
            mm.madvise(ctx, addr, pages * PAGE, advice)
        });
    }

    fn put(&self, addr: u64, text: &[u8]) {
        assert_eq!(self.mm.space.write(addr, text), text.len(), "{addr:#x}");
    }

    fn get(&self, addr: u64) -> Vec<u8> {
        let mut buf = [0; 4];
        assert_eq!(self.mm.space.read(addr, &mut buf), 4, "{addr:#x}");
        buf.to_vec()
    }

    fn fork(&mut self) -> Process {
        let ctx = self.ctx.spawn(Spawn::Fork).unwrap();
        let mm = self.mm.forked(ctx.space());
        Process { ctx, mm }
    }
}

/// The image of some processes.
struct Image {
    spaces: Vec<MemoryState>,
    shared: Vec<SharedState>,
    files: Vec<Arc<OpenFile>>,
    pages: PageFile,
    /// Of the images that this one keeps pages of.
    layers: Vec<PageFile>,
}

impl Image {
    /// The files of pages, as a clone gets them.
    fn files(&self) -> Vec<PageFile> {
        let files = std::iter::once(&self.pages).chain(&self.layers);
        files.map(|file| PageFile::open(file.fd().clone()).unwrap()).collect()
    }
}

/// What the host's pagemap says.
struct PageMap(std::fs::File);

impl Presence for PageMap {
    fn own_pages(&mut self, mut at: u64, end: u64, found: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        while at < end {
            let (until, ranges) = hostsys::pagemap::own_pages(self.0.as_fd(), at, end, 3)
                .map_err(|e| io::Error::from_raw_os_error(e.raw()))?;
            ranges.into_iter().for_each(|(a, b)| found(a, b));
            at = until;
        }
        Ok(())
    }
}

/// `None` where the host's kernel is too old.
fn page_map(p: &Process) -> Option<PageMap> {
    let file = std::fs::File::open(format!("/proc/{}/pagemap", p.mm.space.host_pid())).ok()?;
    let mut map = PageMap(file);
    map.own_pages(0, PAGE, &mut |_, _| ()).is_ok().then_some(map)
}

fn save(platform: &Arc<dyn Platform>, processes: &mut [&mut Process], scans: bool) -> Image {
    save_over(platform, processes, scans, Vec::new())
}

/// Keeps what is as in the files that the processes were restored from.
fn save_over(
    platform: &Arc<dyn Platform>,
    processes: &mut [&mut Process],
    scans: bool,
    layers: Vec<PageFile>,
) -> Image {
    let fd = Arc::new(hostsys::memfd::create(c"pages", 0, false).unwrap());
    let pages = Arc::new(PageFile::create(fd.clone()));
    let mut files: Vec<Arc<OpenFile>> = Vec::new();
    let mut saver = Saver::new(platform.limits(), pages.clone(), !layers.is_empty());
    let mut spaces = Vec::new();
    for (i, p) in processes.iter_mut().enumerate() {
        p.mm.with_map(|m| files.extend(m.iter().filter_map(|area| area.file.as_deref().cloned())));
        files.extend(p.mm.image().exe);
        let mut map = if scans { page_map(p) } else { None };
        let own = map.as_mut().map(|map| map as &mut dyn Presence);
        spaces.push(p.mm.state(i as u64, p.ctx.as_mut(), own, &mut saver).unwrap());
    }
    let shared = saver.shared();
    pages.finish().unwrap();
    let mut bytes = Vec::new();
    ciborium::into_writer(&(&spaces, &shared), &mut bytes).unwrap();
    let (spaces, shared) = ciborium::from_reader(&bytes[..]).unwrap();
    Image { spaces, shared, files, pages: PageFile::checked(fd, pages.sums()).unwrap(), layers }
}

fn restore(platform: &Arc<dyn Platform>, image: &Image) -> Vec<Process> {
    let all = Arc::new(AddressSpaces::default());
    let file = |id: u64| image.files.iter().find(|f| f.id == id).cloned();
    let pages = (&image.pages, image.layers.as_slice());
    let restorer = Restorer::new(&all, platform.limits(), pages, &file, &image.shared).unwrap();
    let each = image.spaces.iter().map(|saved| {
        let mut ctx = platform.new_space().unwrap();
        let user_ns = user_ns::UserNamespace::initial();
        let mm = restorer.restore(&TestCaller::root(), ctx.as_mut(), saved, user_ns).unwrap();
        Process { ctx, mm }
    });
    each.collect()
}

fn zero() -> Vec<u8> {
    vec![0; 4]
}

fn memory(platform: Arc<dyn Platform>, scans: bool) {
    let all = Arc::new(AddressSpaces::default());
    let mut a = Process::new(&platform, &all);
    let heap = a.map(2000, RW, ANON, None);
    let guard = a.map(4, RW, ANON, None);
    let wiped = a.map(2, RW, ANON, None);
    let shared = a.map(600, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None);
    let memfds = tmpfs::Memfds::new(&tmpfs::MemFiles::new(None));
    let file = memfds.memfd(&TestCaller::root(), b"data", 0).unwrap();
    let content: Vec<u8> = (0..6 * PAGE).map(|i| b'0' + (i / PAGE) as u8).collect();
    assert_eq!(file.ops.write(&TestCaller::root(), &file, &content, 0).unwrap(), content.len());
    let private = a.map(8, RW, libc::MAP_PRIVATE, Some(&file));
    let public = a.map(8, RW, libc::MAP_SHARED, Some(&file));
    for (at, text) in [(0, b"frst"), (100, b"hund"), (999, b"more"), (1999, b"last")] {
        a.put(heap + at * PAGE, text);
    }
    a.put(guard + PAGE, b"hide");
    a.settled(|mm, ctx| mm.mprotect(ctx, guard, 4 * PAGE, libc::PROT_NONE));
    a.put(wiped, b"wipe");
    a.advise(wiped, 2, libc::MADV_WIPEONFORK);
    a.put(private + PAGE, b"mine");
    a.put(private + 3 * PAGE, &[0; PAGE as usize]);
    let mut b = a.fork();
    b.put(shared + 7 * PAGE, b"both");
    b.put(heap + 100 * PAGE, b"bbbb");
    assert_eq!(a.get(shared + 7 * PAGE), b"both");

    let image = save(&platform, &mut [&mut a, &mut b], scans);
    let heap_pages = &image.spaces[0].areas.iter().find(|v| v.start == heap).unwrap().pages;
    assert_eq!(heap_pages.len(), 3);
    // The program goes on as before.
    assert_eq!(a.mm.space.read(guard + PAGE, &mut [0; 4]), 0);
    assert_eq!(a.get(heap + 100 * PAGE), b"hund");
    let found = |p: &Process, at: u64| p.mm.with_map(|m| m.find(at).cloned()).unwrap();
    let mut restored = restore(&platform, &image);
    // The original changes nothing any more.
    a.put(shared + 7 * PAGE, b"late");
    let again = {
        let mut all: Vec<&mut Process> = restored.iter_mut().collect();
        save(&platform, &mut all, scans)
    };
    for processes in [restored, restore(&platform, &again)] {
        let [mut a, b]: [Process; 2] = processes.try_into().ok().unwrap();
        assert_eq!(a.get(heap), b"frst");
        assert_eq!(a.get(heap + PAGE), zero());
        assert_eq!(a.get(heap + 100 * PAGE), b"hund");
        assert_eq!(b.get(heap + 100 * PAGE), b"bbbb");
        assert_eq!(a.get(heap + 999 * PAGE), b"more");
        assert_eq!(a.get(heap + 1999 * PAGE), b"last");
        assert_eq!(found(&a, heap).prot, RW);
        // What is shared is shared, and what is not is not.
        assert_eq!(a.get(shared + 7 * PAGE), b"both");
        a.put(shared, b"news");
        assert_eq!(b.get(shared), b"news");
        a.put(heap, b"mine");
        assert_eq!(b.get(heap), b"frst");
        // Without access, and with what it held.
        assert_eq!(a.mm.space.read(guard + PAGE, &mut [0; 4]), 0);
        a.settled(|mm, ctx| mm.mprotect(ctx, guard, 4 * PAGE, RW));
        assert_eq!(a.get(guard + PAGE), b"hide");
        assert_eq!(a.get(guard), zero());
        // A file's pages and the program's.
        assert_eq!([a.get(private), a.get(private + PAGE)], [b"0000", b"mine"]);
        assert_eq!([a.get(private + 2 * PAGE), a.get(private + 3 * PAGE)], [b"2222".to_vec(), zero()]);
        assert_eq!(a.mm.space.read(private + 7 * PAGE, &mut [0; 4]), 0);
        assert_eq!(a.get(public + PAGE), b"1111");
        // Dropped pages are zeros, or the file's.
        a.advise(heap + 90 * PAGE, 20, libc::MADV_DONTNEED);
        assert_eq!(a.get(heap + 100 * PAGE), zero());
        assert_eq!(a.get(heap + 999 * PAGE), b"more");
        a.advise(heap + 1999 * PAGE, 1, libc::MADV_FREE);
        a.advise(private, 4, libc::MADV_DONTNEED);
        assert_eq!([a.get(private + PAGE), a.get(private + 3 * PAGE)], [b"1111", b"3333"]);
        // Moving and growing.
        let to = a.settled(|mm, ctx| {
            mm.mremap(&TestCaller::root(), ctx, (heap, 1000 * PAGE, 3000 * PAGE), libc::MREMAP_MAYMOVE, 0)
        });
        assert_ne!(to, heap);
        assert_eq!([a.get(to), a.get(to + 999 * PAGE)], [b"mine", b"more"]);
        for page in (1..99).chain(1000..3000) {
            assert_eq!(a.get(to + page * PAGE), zero(), "page {page}");
        }
        a.advise(to, 3000, libc::MADV_DONTNEED);
        assert_eq!([a.get(to), a.get(to + 999 * PAGE)], [zero(), zero()]);
        // A fork sees what it should.
        assert_eq!(a.get(wiped), b"wipe");
        let c = a.fork();
        assert_eq!(c.get(wiped), zero());
        assert_eq!(c.get(shared), b"news");
        a.advise(guard, 4, libc::MADV_WIPEONFORK);
        assert_eq!(a.get(guard + PAGE), b"hide");
        assert_eq!(a.fork().get(guard + PAGE), zero());
    }
}

/// Clones of clones: pages that change at random, and generations that keep what has not changed.
fn generations(platform: Arc<dyn Platform>, seed: u64) {
    const PAGES: u64 = 600;
    let mut seed = seed;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut a = Process::new(&platform, &Arc::default());
    let memfds = tmpfs::Memfds::new(&tmpfs::MemFiles::new(None));
    let file = memfds.memfd(&TestCaller::root(), b"data", 0).unwrap();
    let content = vec![b'f'; (PAGES * PAGE) as usize];
    assert_eq!(file.ops.write(&TestCaller::root(), &file, &content, 0).unwrap(), content.len());
    let areas = [
        (a.map(PAGES, RW, ANON, None), zero()),
        (a.map(PAGES, RW, libc::MAP_PRIVATE, Some(&file)), b"ffff".to_vec()),
    ];
    let mut model: Vec<Vec<Vec<u8>>> =
        areas.iter().map(|(_, empty)| vec![empty.clone(); PAGES as usize]).collect();
    let mut layers: Vec<PageFile> = Vec::new();
    for generation in 0..6 {
        for _ in 0..60 {
            let (area, page) = (random(2) as usize, random(PAGES));
            let len = (1 + random(20)).min(PAGES - page);
            let (start, empty) = &areas[area];
            let at = start + page * PAGE;
            match random(6) {
                0 => {
                    a.advise(at, len, libc::MADV_DONTNEED);
                    (page..page + len).for_each(|p| model[area][p as usize] = empty.clone());
                }
                1 => {
                    a.settled(|mm, ctx| mm.mprotect(ctx, at, len * PAGE, libc::PROT_READ));
                    a.settled(|mm, ctx| mm.mprotect(ctx, at, len * PAGE, RW));
                }
                // There and back.
                2 => {
                    let aside = a.map(len, RW, ANON, None);
                    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                    for (from, to) in [(at, aside), (aside, at)] {
                        let parts = (from, len * PAGE, len * PAGE);
                        a.settled(|mm, ctx| mm.mremap(&TestCaller::root(), ctx, parts, flags, to));
                    }
                }
                n => {
                    for p in page..page + len {
                        let text =
                            if n == 3 { zero() } else { random(u32::MAX.into()).to_le_bytes()[..4].to_vec() };
                        a.put(start + p * PAGE, &text);
                        model[area][p as usize] = text;
                    }
                }
            }
        }
        let image = save_over(&platform, &mut [&mut a], true, layers);
        if generation > 0 {
            assert!(image.spaces[0].areas.iter().any(|v| !v.kept.is_empty()), "nothing is kept");
        }
        a = restore(&platform, &image).pop().unwrap();
        for (area, (start, _)) in areas.iter().enumerate() {
            for page in 0..PAGES {
                assert_eq!(
                    a.get(start + page * PAGE),
                    model[area][page as usize],
                    "{generation} {area} {page}"
                );
            }
        }
        layers = image.files();
    }
}

#[test]
fn clones_of_clones() {
    for seed in 0..4 {
        for platform in [systrap(), ptrace()] {
            let mut probe = Process::new(&platform, &Arc::default());
            probe.map(1, RW, ANON, None);
            if page_map(&probe).is_some() {
                generations(platform, seed);
            }
        }
    }
}

/// A large reservation with little in it costs little.
fn reservation(platform: Arc<dyn Platform>) {
    let mut a = Process::new(&platform, &Arc::default());
    let pages = 1 << 28;
    let at = a.map(pages, RW, ANON | libc::MAP_NORESERVE, None);
    for page in [0, 7, 8, pages / 2, pages - 1] {
        a.put(at + page * PAGE, b"used");
    }
    a.settled(|mm, ctx| mm.mprotect(ctx, at, pages * PAGE, libc::PROT_NONE));
    if page_map(&a).is_none() {
        return;
    }
    let image = save(&platform, &mut [&mut a], true);
    assert_eq!(image.spaces[0].areas[0].pages.len(), 3);
    assert_eq!(image.pages.len(), 11 * PAGE);
    let [mut b]: [Process; 1] = restore(&platform, &image).try_into().ok().unwrap();
    b.settled(|mm, ctx| mm.mprotect(ctx, at, pages * PAGE, RW));
    for page in [0, 7, 8, pages / 2, pages - 1] {
        assert_eq!(b.get(at + page * PAGE), b"used");
        assert_eq!(b.get(at + (page ^ 2) * PAGE), zero());
    }
}

#[test]
fn a_reservation_of_a_terabyte() {
    reservation(ptrace());
    reservation(systrap());
}

#[test]
fn memory_on_ptrace() {
    memory(ptrace(), false);
    memory(ptrace(), true);
}

#[test]
fn memory_on_systrap() {
    memory(systrap(), false);
    memory(systrap(), true);
}

/// `cargo test --release -p mm --test checkpoint -- --ignored --nocapture`: the cost of 1 GiB.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_gibibyte() {
    let platform = systrap();
    let mut a = Process::new(&platform, &Arc::default());
    let pages = 1 << 18;
    let at = a.map(pages, RW, ANON, None);
    let mut seed = 1u64;
    let mut block = vec![0u8; 1 << 20];
    for i in 0..1024 {
        for word in block.as_chunks_mut::<8>().0 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *word = seed.to_le_bytes();
        }
        a.put(at + (i << 20), &block);
    }
    for round in 0..3 {
        let began = std::time::Instant::now();
        let image = save(&platform, &mut [&mut a], true);
        let saved = began.elapsed();
        let began = std::time::Instant::now();
        let [b]: [Process; 1] = restore(&platform, &image).try_into().ok().unwrap();
        let restored = began.elapsed();
        let began = std::time::Instant::now();
        (0..pages).for_each(|page| drop(b.get(at + page * PAGE)));
        println!(
            "round {round}: saved in {saved:?}, restored in {restored:?}, all read in {:?}",
            began.elapsed()
        );
    }
}
