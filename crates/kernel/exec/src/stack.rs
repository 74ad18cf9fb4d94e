//! The initial stack: strings, auxiliary vector, environment, arguments.
//! See getauxval(3) and the x86-64 ABI supplement.

use abi::{PAGE_SIZE, libc};

/// Values of the auxiliary vector that depend on the image and the task.
pub(crate) struct Aux {
    pub sysinfo_ehdr: Option<u64>,
    pub phdr: u64,
    pub phnum: u64,
    pub base: u64,
    pub entry: u64,
    pub uid: u32,
    pub euid: u32,
    pub gid: u32,
    pub egid: u32,
    pub secure: bool,
}

/// The bytes from the stack pointer up.
pub(crate) struct StackImage {
    pub sp: u64,
    pub bytes: Vec<u8>,
    pub args: (u64, u64),
    pub env: (u64, u64),
    pub auxv: Vec<u8>,
}

impl StackImage {
    pub fn build(top: u64, argv: &[Vec<u8>], envp: &[Vec<u8>], execfn: &[u8], aux: &Aux) -> StackImage {
        let size = |v: &[Vec<u8>]| v.iter().map(|s| s.len() as u64 + 1).sum::<u64>();
        // From the top down: a null word, the file name, environment, arguments.
        let execfn_at = top - 8 - (execfn.len() as u64 + 1);
        let env_at = execfn_at - size(envp);
        let args_at = env_at - size(argv);
        let platform_at = (args_at - 16) & !15;
        let random_at = platform_at - 16;

        let mut random = [0u8; 16];
        hostsys::clock::random(&mut random);
        let hw = |k| hostsys::clock::auxval(k);
        let mut auxv: Vec<(u64, u64)> = Vec::new();
        if let Some(v) = aux.sysinfo_ehdr {
            auxv.push((libc::AT_SYSINFO_EHDR, v));
        }
        auxv.extend([
            (libc::AT_HWCAP, hw(libc::AT_HWCAP)),
            (libc::AT_PAGESZ, PAGE_SIZE),
            (libc::AT_CLKTCK, 100),
            (libc::AT_PHDR, aux.phdr),
            (libc::AT_PHENT, 56),
            (libc::AT_PHNUM, aux.phnum),
            (libc::AT_BASE, aux.base),
            (libc::AT_FLAGS, 0),
            (libc::AT_ENTRY, aux.entry),
            (libc::AT_UID, aux.uid.into()),
            (libc::AT_EUID, aux.euid.into()),
            (libc::AT_GID, aux.gid.into()),
            (libc::AT_EGID, aux.egid.into()),
            (libc::AT_SECURE, aux.secure.into()),
            (libc::AT_RANDOM, random_at),
            (libc::AT_HWCAP2, hw(libc::AT_HWCAP2)),
            (libc::AT_EXECFN, execfn_at),
            (libc::AT_PLATFORM, platform_at),
            (libc::AT_MINSIGSTKSZ, hw(libc::AT_MINSIGSTKSZ)),
            (libc::AT_NULL, 0),
        ]);
        let words = 1 + argv.len() + 1 + envp.len() + 1 + auxv.len() * 2;
        let sp = (random_at - words as u64 * 8) & !15;

        let mut b = Vec::with_capacity((top - sp) as usize);
        let mut word = |v: u64| b.extend_from_slice(&v.to_le_bytes());
        word(argv.len() as u64);
        let mut at = args_at;
        for (list, end) in [(argv, env_at), (envp, execfn_at)] {
            for s in list {
                word(at);
                at += s.len() as u64 + 1;
            }
            debug_assert_eq!(at, end);
            word(0);
        }
        for (k, v) in &auxv {
            word(*k);
            word(*v);
        }
        b.resize((random_at - sp) as usize, 0);
        b.extend_from_slice(&random);
        b.extend_from_slice(b"x86_64\0");
        b.resize((args_at - sp) as usize, 0);
        for s in argv.iter().chain(envp) {
            b.extend_from_slice(s);
            b.push(0);
        }
        b.extend_from_slice(execfn);
        b.push(0);
        b.resize((top - sp) as usize, 0);
        let flat = auxv.iter().flat_map(|(k, v)| [k.to_le_bytes(), v.to_le_bytes()].concat()).collect();
        StackImage { sp, bytes: b, args: (args_at, env_at), env: (env_at, execfn_at), auxv: flat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let aux = Aux {
            sysinfo_ehdr: None,
            phdr: 1,
            phnum: 2,
            base: 3,
            entry: 4,
            uid: 0,
            euid: 0,
            gid: 0,
            egid: 0,
            secure: false,
        };
        let top = 0x7000_0000;
        let s =
            StackImage::build(top, &[b"prog".to_vec(), b"x".to_vec()], &[b"A=1".to_vec()], b"/prog", &aux);
        assert_eq!(s.sp % 16, 0);
        assert_eq!(s.sp + s.bytes.len() as u64, top);
        let w = |i: usize| u64::from_le_bytes(s.bytes[i * 8..i * 8 + 8].try_into().unwrap());
        assert_eq!(w(0), 2);
        let text = |a: u64| &s.bytes[(a - s.sp) as usize..];
        assert!(text(w(1)).starts_with(b"prog\0") && text(w(2)).starts_with(b"x\0"));
        assert_eq!(w(3), 0);
        assert!(text(w(4)).starts_with(b"A=1\0"));
        assert_eq!(w(5), 0);
        assert_eq!(&text(s.args.0)[..(s.args.1 - s.args.0) as usize], b"prog\0x\0");
    }
}
