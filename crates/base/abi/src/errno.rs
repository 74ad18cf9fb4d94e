//! Linux error numbers as a small `Copy` value.
//!
//! See errno(3). The numbers are those of x86-64 Linux.

use std::fmt;

/// An error number that a system call can return, e.g. `Errno::ENOENT`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(from = "i32", into = "i32")]
pub struct Errno(u16);

impl From<i32> for Errno {
    fn from(raw: i32) -> Errno {
        Errno::from_raw(raw)
    }
}

impl From<Errno> for i32 {
    fn from(errno: Errno) -> i32 {
        errno.raw()
    }
}

/// Result of an operation that fails with an [`Errno`].
pub type Result<T, E = Errno> = std::result::Result<T, E>;

impl Errno {
    /// Wraps a raw positive error number (1..=4095); others become `EIO`.
    pub const fn from_raw(raw: i32) -> Errno {
        if raw > 0 && raw < 4096 { Errno(raw as u16) } else { Errno::EIO }
    }

    /// The positive error number.
    pub const fn raw(self) -> i32 {
        self.0 as i32
    }

    /// The value a system call leaves in rax for this error.
    pub const fn to_ret(self) -> u64 {
        -(self.0 as i64) as u64
    }

    /// The symbolic name, `"E?"` for numbers Linux does not define.
    pub const fn name(self) -> &'static str {
        match self.0 {
            1 => "EPERM",
            2 => "ENOENT",
            3 => "ESRCH",
            4 => "EINTR",
            5 => "EIO",
            6 => "ENXIO",
            7 => "E2BIG",
            8 => "ENOEXEC",
            9 => "EBADF",
            10 => "ECHILD",
            11 => "EAGAIN",
            12 => "ENOMEM",
            13 => "EACCES",
            14 => "EFAULT",
            15 => "ENOTBLK",
            16 => "EBUSY",
            17 => "EEXIST",
            18 => "EXDEV",
            19 => "ENODEV",
            20 => "ENOTDIR",
            21 => "EISDIR",
            22 => "EINVAL",
            23 => "ENFILE",
            24 => "EMFILE",
            25 => "ENOTTY",
            26 => "ETXTBSY",
            27 => "EFBIG",
            28 => "ENOSPC",
            29 => "ESPIPE",
            30 => "EROFS",
            31 => "EMLINK",
            32 => "EPIPE",
            33 => "EDOM",
            34 => "ERANGE",
            35 => "EDEADLK",
            36 => "ENAMETOOLONG",
            37 => "ENOLCK",
            38 => "ENOSYS",
            39 => "ENOTEMPTY",
            40 => "ELOOP",
            42 => "ENOMSG",
            43 => "EIDRM",
            44 => "ECHRNG",
            45 => "EL2NSYNC",
            46 => "EL3HLT",
            47 => "EL3RST",
            48 => "ELNRNG",
            49 => "EUNATCH",
            50 => "ENOCSI",
            51 => "EL2HLT",
            52 => "EBADE",
            53 => "EBADR",
            54 => "EXFULL",
            55 => "ENOANO",
            56 => "EBADRQC",
            57 => "EBADSLT",
            59 => "EBFONT",
            60 => "ENOSTR",
            61 => "ENODATA",
            62 => "ETIME",
            63 => "ENOSR",
            64 => "ENONET",
            65 => "ENOPKG",
            66 => "EREMOTE",
            67 => "ENOLINK",
            68 => "EADV",
            69 => "ESRMNT",
            70 => "ECOMM",
            71 => "EPROTO",
            72 => "EMULTIHOP",
            73 => "EDOTDOT",
            74 => "EBADMSG",
            75 => "EOVERFLOW",
            76 => "ENOTUNIQ",
            77 => "EBADFD",
            78 => "EREMCHG",
            79 => "ELIBACC",
            80 => "ELIBBAD",
            81 => "ELIBSCN",
            82 => "ELIBMAX",
            83 => "ELIBEXEC",
            84 => "EILSEQ",
            85 => "ERESTART",
            86 => "ESTRPIPE",
            87 => "EUSERS",
            88 => "ENOTSOCK",
            89 => "EDESTADDRREQ",
            90 => "EMSGSIZE",
            91 => "EPROTOTYPE",
            92 => "ENOPROTOOPT",
            93 => "EPROTONOSUPPORT",
            94 => "ESOCKTNOSUPPORT",
            95 => "EOPNOTSUPP",
            96 => "EPFNOSUPPORT",
            97 => "EAFNOSUPPORT",
            98 => "EADDRINUSE",
            99 => "EADDRNOTAVAIL",
            100 => "ENETDOWN",
            101 => "ENETUNREACH",
            102 => "ENETRESET",
            103 => "ECONNABORTED",
            104 => "ECONNRESET",
            105 => "ENOBUFS",
            106 => "EISCONN",
            107 => "ENOTCONN",
            108 => "ESHUTDOWN",
            109 => "ETOOMANYREFS",
            110 => "ETIMEDOUT",
            111 => "ECONNREFUSED",
            112 => "EHOSTDOWN",
            113 => "EHOSTUNREACH",
            114 => "EALREADY",
            115 => "EINPROGRESS",
            116 => "ESTALE",
            117 => "EUCLEAN",
            118 => "ENOTNAM",
            119 => "ENAVAIL",
            120 => "EISNAM",
            121 => "EREMOTEIO",
            122 => "EDQUOT",
            123 => "ENOMEDIUM",
            124 => "EMEDIUMTYPE",
            125 => "ECANCELED",
            126 => "ENOKEY",
            127 => "EKEYEXPIRED",
            128 => "EKEYREVOKED",
            129 => "EKEYREJECTED",
            130 => "EOWNERDEAD",
            131 => "ENOTRECOVERABLE",
            132 => "ERFKILL",
            133 => "EHWPOISON",
            _ => "E?",
        }
    }
    /// Operation not permitted (1).
    pub const EPERM: Errno = Errno(1);
    /// No such file or directory (2).
    pub const ENOENT: Errno = Errno(2);
    /// No such process (3).
    pub const ESRCH: Errno = Errno(3);
    /// Interrupted system call (4).
    pub const EINTR: Errno = Errno(4);
    /// Input/output error (5).
    pub const EIO: Errno = Errno(5);
    /// No such device or address (6).
    pub const ENXIO: Errno = Errno(6);
    /// Argument list too long (7).
    pub const E2BIG: Errno = Errno(7);
    /// Exec format error (8).
    pub const ENOEXEC: Errno = Errno(8);
    /// Bad file descriptor (9).
    pub const EBADF: Errno = Errno(9);
    /// No child processes (10).
    pub const ECHILD: Errno = Errno(10);
    /// Resource temporarily unavailable (11).
    pub const EAGAIN: Errno = Errno(11);
    /// Cannot allocate memory (12).
    pub const ENOMEM: Errno = Errno(12);
    /// Permission denied (13).
    pub const EACCES: Errno = Errno(13);
    /// Bad address (14).
    pub const EFAULT: Errno = Errno(14);
    /// Block device required (15).
    pub const ENOTBLK: Errno = Errno(15);
    /// Device or resource busy (16).
    pub const EBUSY: Errno = Errno(16);
    /// File exists (17).
    pub const EEXIST: Errno = Errno(17);
    /// Invalid cross-device link (18).
    pub const EXDEV: Errno = Errno(18);
    /// No such device (19).
    pub const ENODEV: Errno = Errno(19);
    /// Not a directory (20).
    pub const ENOTDIR: Errno = Errno(20);
    /// Is a directory (21).
    pub const EISDIR: Errno = Errno(21);
    /// Invalid argument (22).
    pub const EINVAL: Errno = Errno(22);
    /// Too many open files in system (23).
    pub const ENFILE: Errno = Errno(23);
    /// Too many open files (24).
    pub const EMFILE: Errno = Errno(24);
    /// Inappropriate ioctl for device (25).
    pub const ENOTTY: Errno = Errno(25);
    /// Text file busy (26).
    pub const ETXTBSY: Errno = Errno(26);
    /// File too large (27).
    pub const EFBIG: Errno = Errno(27);
    /// No space left on device (28).
    pub const ENOSPC: Errno = Errno(28);
    /// Illegal seek (29).
    pub const ESPIPE: Errno = Errno(29);
    /// Read-only file system (30).
    pub const EROFS: Errno = Errno(30);
    /// Too many links (31).
    pub const EMLINK: Errno = Errno(31);
    /// Broken pipe (32).
    pub const EPIPE: Errno = Errno(32);
    /// Numerical argument out of domain (33).
    pub const EDOM: Errno = Errno(33);
    /// Numerical result out of range (34).
    pub const ERANGE: Errno = Errno(34);
    /// Resource deadlock avoided (35).
    pub const EDEADLK: Errno = Errno(35);
    /// File name too long (36).
    pub const ENAMETOOLONG: Errno = Errno(36);
    /// No locks available (37).
    pub const ENOLCK: Errno = Errno(37);
    /// Function not implemented (38).
    pub const ENOSYS: Errno = Errno(38);
    /// Directory not empty (39).
    pub const ENOTEMPTY: Errno = Errno(39);
    /// Too many levels of symbolic links (40).
    pub const ELOOP: Errno = Errno(40);
    /// No message of desired type (42).
    pub const ENOMSG: Errno = Errno(42);
    /// Identifier removed (43).
    pub const EIDRM: Errno = Errno(43);
    /// Channel number out of range (44).
    pub const ECHRNG: Errno = Errno(44);
    /// Level 2 not synchronized (45).
    pub const EL2NSYNC: Errno = Errno(45);
    /// Level 3 halted (46).
    pub const EL3HLT: Errno = Errno(46);
    /// Level 3 reset (47).
    pub const EL3RST: Errno = Errno(47);
    /// Link number out of range (48).
    pub const ELNRNG: Errno = Errno(48);
    /// Protocol driver not attached (49).
    pub const EUNATCH: Errno = Errno(49);
    /// No CSI structure available (50).
    pub const ENOCSI: Errno = Errno(50);
    /// Level 2 halted (51).
    pub const EL2HLT: Errno = Errno(51);
    /// Invalid exchange (52).
    pub const EBADE: Errno = Errno(52);
    /// Invalid request descriptor (53).
    pub const EBADR: Errno = Errno(53);
    /// Exchange full (54).
    pub const EXFULL: Errno = Errno(54);
    /// No anode (55).
    pub const ENOANO: Errno = Errno(55);
    /// Invalid request code (56).
    pub const EBADRQC: Errno = Errno(56);
    /// Invalid slot (57).
    pub const EBADSLT: Errno = Errno(57);
    /// Bad font file format (59).
    pub const EBFONT: Errno = Errno(59);
    /// Device not a stream (60).
    pub const ENOSTR: Errno = Errno(60);
    /// No data available (61).
    pub const ENODATA: Errno = Errno(61);
    /// Timer expired (62).
    pub const ETIME: Errno = Errno(62);
    /// Out of streams resources (63).
    pub const ENOSR: Errno = Errno(63);
    /// Machine is not on the network (64).
    pub const ENONET: Errno = Errno(64);
    /// Package not installed (65).
    pub const ENOPKG: Errno = Errno(65);
    /// Object is remote (66).
    pub const EREMOTE: Errno = Errno(66);
    /// Link has been severed (67).
    pub const ENOLINK: Errno = Errno(67);
    /// Advertise error (68).
    pub const EADV: Errno = Errno(68);
    /// Srmount error (69).
    pub const ESRMNT: Errno = Errno(69);
    /// Communication error on send (70).
    pub const ECOMM: Errno = Errno(70);
    /// Protocol error (71).
    pub const EPROTO: Errno = Errno(71);
    /// Multihop attempted (72).
    pub const EMULTIHOP: Errno = Errno(72);
    /// RFS specific error (73).
    pub const EDOTDOT: Errno = Errno(73);
    /// Bad message (74).
    pub const EBADMSG: Errno = Errno(74);
    /// Value too large for defined data type (75).
    pub const EOVERFLOW: Errno = Errno(75);
    /// Name not unique on network (76).
    pub const ENOTUNIQ: Errno = Errno(76);
    /// File descriptor in bad state (77).
    pub const EBADFD: Errno = Errno(77);
    /// Remote address changed (78).
    pub const EREMCHG: Errno = Errno(78);
    /// Can not access a needed shared library (79).
    pub const ELIBACC: Errno = Errno(79);
    /// Accessing a corrupted shared library (80).
    pub const ELIBBAD: Errno = Errno(80);
    /// .lib section in a.out corrupted (81).
    pub const ELIBSCN: Errno = Errno(81);
    /// Attempting to link in too many shared libraries (82).
    pub const ELIBMAX: Errno = Errno(82);
    /// Cannot exec a shared library directly (83).
    pub const ELIBEXEC: Errno = Errno(83);
    /// Invalid or incomplete multibyte or wide character (84).
    pub const EILSEQ: Errno = Errno(84);
    /// Interrupted system call should be restarted (85).
    pub const ERESTART: Errno = Errno(85);
    /// Streams pipe error (86).
    pub const ESTRPIPE: Errno = Errno(86);
    /// Too many users (87).
    pub const EUSERS: Errno = Errno(87);
    /// Socket operation on non-socket (88).
    pub const ENOTSOCK: Errno = Errno(88);
    /// Destination address required (89).
    pub const EDESTADDRREQ: Errno = Errno(89);
    /// Message too long (90).
    pub const EMSGSIZE: Errno = Errno(90);
    /// Protocol wrong type for socket (91).
    pub const EPROTOTYPE: Errno = Errno(91);
    /// Protocol not available (92).
    pub const ENOPROTOOPT: Errno = Errno(92);
    /// Protocol not supported (93).
    pub const EPROTONOSUPPORT: Errno = Errno(93);
    /// Socket type not supported (94).
    pub const ESOCKTNOSUPPORT: Errno = Errno(94);
    /// Operation not supported (95).
    pub const EOPNOTSUPP: Errno = Errno(95);
    /// Protocol family not supported (96).
    pub const EPFNOSUPPORT: Errno = Errno(96);
    /// Address family not supported by protocol (97).
    pub const EAFNOSUPPORT: Errno = Errno(97);
    /// Address already in use (98).
    pub const EADDRINUSE: Errno = Errno(98);
    /// Cannot assign requested address (99).
    pub const EADDRNOTAVAIL: Errno = Errno(99);
    /// Network is down (100).
    pub const ENETDOWN: Errno = Errno(100);
    /// Network is unreachable (101).
    pub const ENETUNREACH: Errno = Errno(101);
    /// Network dropped connection on reset (102).
    pub const ENETRESET: Errno = Errno(102);
    /// Software caused connection abort (103).
    pub const ECONNABORTED: Errno = Errno(103);
    /// Connection reset by peer (104).
    pub const ECONNRESET: Errno = Errno(104);
    /// No buffer space available (105).
    pub const ENOBUFS: Errno = Errno(105);
    /// Transport endpoint is already connected (106).
    pub const EISCONN: Errno = Errno(106);
    /// Transport endpoint is not connected (107).
    pub const ENOTCONN: Errno = Errno(107);
    /// Cannot send after transport endpoint shutdown (108).
    pub const ESHUTDOWN: Errno = Errno(108);
    /// Too many references: cannot splice (109).
    pub const ETOOMANYREFS: Errno = Errno(109);
    /// Connection timed out (110).
    pub const ETIMEDOUT: Errno = Errno(110);
    /// Connection refused (111).
    pub const ECONNREFUSED: Errno = Errno(111);
    /// Host is down (112).
    pub const EHOSTDOWN: Errno = Errno(112);
    /// No route to host (113).
    pub const EHOSTUNREACH: Errno = Errno(113);
    /// Operation already in progress (114).
    pub const EALREADY: Errno = Errno(114);
    /// Operation now in progress (115).
    pub const EINPROGRESS: Errno = Errno(115);
    /// Stale file handle (116).
    pub const ESTALE: Errno = Errno(116);
    /// Structure needs cleaning (117).
    pub const EUCLEAN: Errno = Errno(117);
    /// Not a XENIX named type file (118).
    pub const ENOTNAM: Errno = Errno(118);
    /// No XENIX semaphores available (119).
    pub const ENAVAIL: Errno = Errno(119);
    /// Is a named type file (120).
    pub const EISNAM: Errno = Errno(120);
    /// Remote I/O error (121).
    pub const EREMOTEIO: Errno = Errno(121);
    /// Disk quota exceeded (122).
    pub const EDQUOT: Errno = Errno(122);
    /// No medium found (123).
    pub const ENOMEDIUM: Errno = Errno(123);
    /// Wrong medium type (124).
    pub const EMEDIUMTYPE: Errno = Errno(124);
    /// Operation canceled (125).
    pub const ECANCELED: Errno = Errno(125);
    /// Required key not available (126).
    pub const ENOKEY: Errno = Errno(126);
    /// Key has expired (127).
    pub const EKEYEXPIRED: Errno = Errno(127);
    /// Key has been revoked (128).
    pub const EKEYREVOKED: Errno = Errno(128);
    /// Key was rejected by service (129).
    pub const EKEYREJECTED: Errno = Errno(129);
    /// Owner died (130).
    pub const EOWNERDEAD: Errno = Errno(130);
    /// State not recoverable (131).
    pub const ENOTRECOVERABLE: Errno = Errno(131);
    /// Operation not possible due to RF-kill (132).
    pub const ERFKILL: Errno = Errno(132);
    /// Memory page has hardware error (133).
    pub const EHWPOISON: Errno = Errno(133);
    /// A signal stopped an operation that can only answer with an error number (background processes at
    /// their terminal). No program sees it: the system call layer turns it into a restart.
    pub const ERESTARTSYS: Errno = Errno(512);
    /// Alias of `EAGAIN`.
    pub const EWOULDBLOCK: Errno = Errno::EAGAIN;
    /// Alias of `EOPNOTSUPP`.
    pub const ENOTSUP: Errno = Errno::EOPNOTSUPP;
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Errno {
        Errno::from_raw(e.raw_os_error().unwrap_or(5))
    }
}
