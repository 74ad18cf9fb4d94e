//! Entrances for `fuzz/`: what the sentry reads of memory that guest code can write.

use crate::rewrite::{AROUND, Sites};
use crate::slot::{SlotMap, create_file};
use abi::PAGE_SIZE;
use hostsys::memfd::SharedMapping;
use platform::{AddressSpace, Regs, Rewrite};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use stub::layout::SLOT_SIZE;

/// A slot, and the guest's side of it.
static SLOT: Mutex<Option<(SlotMap, SharedMapping)>> = Mutex::new(None);

/// Fills a slot with these bytes over and over and reads everything that the sentry ever reads of it: how long the
/// captured windows are, and how many call sites it names.
pub fn slot(bytes: &[u8]) -> ([usize; 2], usize) {
    let mut kept = SLOT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (slot, memory) = kept.get_or_insert_with(|| {
        let file = create_file().expect("memory for slots");
        let memory = SharedMapping::new(file.as_fd(), 0, SLOT_SIZE as usize).expect("a mapping");
        (SlotMap::new(file.as_fd(), 0).expect("a mapping"), memory)
    });
    let fill: Vec<u8> = bytes.iter().copied().cycle().take(SLOT_SIZE as usize).collect();
    memory.copy_in(0, if fill.is_empty() { &[0] } else { &fill });
    let windows = [0, 1].map(|i| {
        let (_, len) = slot.window(i);
        let mut buf = vec![0; len];
        slot.read_window(i, 0, &mut buf);
        len
    });
    let mut regs = Regs::default();
    slot.load_regs(&mut regs);
    slot.store_regs(&mut regs);
    assert!(regs.fs_base < 1 << 47 && regs.gs_base < 1 << 47);
    let _ = (slot.call(), slot.stub_cpu(), slot.known(regs.rax as u32).load(Relaxed));
    (windows, slot.fresh().len())
}

/// Plans the rewriting of a call site in this text, with areas for trampolines at these addresses: what comes of it.
pub fn call_site(rip: u64, areas: [u64; 2], alone: bool, forget: bool, text: &[u8]) -> u8 {
    let mut around = [0xf4; 2 * AROUND];
    let len = text.len().min(around.len());
    around[..len].copy_from_slice(&text[..len]);
    // The call itself stands in the middle.
    around[AROUND - 2..AROUND].copy_from_slice(&[0x0f, 0x05]);
    let sites = Sites::default();
    // The kernel chooses them: whole pages of the guest's half.
    let page = |area: u64| area % (1 << 47) / PAGE_SIZE * PAGE_SIZE;
    areas.into_iter().map(page).filter(|area| *area != 0).for_each(|area| sites.add_area(area));
    if forget {
        sites.forget_areas();
    }
    let planned = sites.plan(&Text(around), rip, alone);
    let _ = (sites.guest_rip(rip), sites.former_rip(rip), sites.knows(rip));
    match planned {
        Ok(patch) => {
            assert!(patch.site < rip && sites.guest_rip(patch.trampoline) == patch.site);
            sites.forget(&patch);
            1 + patch.code.len() as u8
        }
        Err(Rewrite::NeedsArea(places)) => {
            // Where the kernel is asked for an area the site has room.
            if let Some(start) = places.first() {
                sites.add_area(*start);
                assert!(!matches!(sites.plan(&Text(around), rip, alone), Err(Rewrite::NeedsArea(_))));
            }
            1
        }
        Err(_) => 0,
    }
}

/// An address space with the same bytes everywhere.
struct Text([u8; 2 * AROUND]);

impl AddressSpace for Text {
    fn read(&self, _addr: u64, buf: &mut [u8]) -> usize {
        let len = buf.len().min(self.0.len());
        buf[..len].copy_from_slice(&self.0[..len]);
        len
    }
    fn write(&self, _addr: u64, _data: &[u8]) -> usize {
        0
    }
    fn kill(&self) {}
    fn host_pid(&self) -> i32 {
        0
    }
}
