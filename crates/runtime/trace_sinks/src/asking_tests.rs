//! Programs that answer, and all the ways in which they do not.

use super::*;
use rustix::net::socketpair;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

struct Asking {
    kernel: OwnedFd,
    socket: PathBuf,
    serving: Option<std::thread::JoinHandle<io::Result<()>>>,
}

impl Asking {
    /// Rule 1 asks a program, rule 2 one that is not there, with this time limit.
    fn new(test: &str, timeout: Duration) -> (Asking, UnixListener) {
        let name = format!("ringfence-ask-{test}-{}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let (kernel, ours) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let gone = Asked { socket: socket.with_extension("gone"), timeout };
        let asked = BTreeMap::from([(1, Asked { socket: socket.clone(), timeout }), (2, gone)]);
        let serving = Some(std::thread::spawn(move || serve(&ours, &asked)));
        (Asking { kernel, socket, serving }, listener)
    }

    fn ask(&self, id: u64, rule: u32) {
        let entry = Entry { point: "file/open".into(), path: Some(format!("/{id}")), ..Entry::default() };
        let packet = serde_json::to_vec(&Question { id, rule: Some(rule), entry }).unwrap();
        send(&self.kernel, &packet, SendFlags::NOSIGNAL).unwrap();
    }

    fn answer(&self) -> Answer {
        let mut buffer = [0; 4096];
        let (length, _) = recv(&self.kernel, &mut buffer[..], RecvFlags::empty()).unwrap();
        serde_json::from_slice(&buffer[..length]).unwrap()
    }

    fn error(&self) -> String {
        self.answer().error.unwrap()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Its end is the end of the process that asks.
        self.kernel =
            rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        let _ = std::fs::remove_file(&self.socket);
        self.serving.take().unwrap().join().unwrap().unwrap();
    }
}

/// The next question, and the connection for its answer.
fn accept(listener: &UnixListener) -> (Entry, UnixStream) {
    let (stream, _) = listener.accept().unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    (serde_json::from_str(&line).unwrap(), stream)
}

#[test]
fn many_questions_are_answered_in_any_order() {
    let (asking, listener) = Asking::new("many", Duration::from_secs(60));
    for id in 0..5 {
        asking.ask(id, 1);
    }
    let mut open: Vec<_> = (0..5).map(|_| accept(&listener)).collect();
    open.reverse();
    for (entry, mut stream) in open {
        let text = if entry.path.as_deref() == Some("/3") {
            "{\"action\": \"deny\", \"errno\": \"EPERM\"}\n"
        } else {
            "{\"action\": \"allow\"}\n"
        };
        stream.write_all(text.as_bytes()).unwrap();
        let answer = asking.answer();
        assert_eq!(format!("/{}", answer.id), entry.path.unwrap());
        let errno = (answer.id == 3).then(|| "EPERM".to_string());
        let action = if answer.id == 3 { "deny" } else { "allow" };
        assert_eq!((answer.action.as_deref(), answer.errno), (Some(action), errno));
    }
}

#[test]
fn a_program_that_fails_is_an_error() {
    let (asking, listener) = Asking::new("fails", Duration::from_secs(60));
    let long = format!("{{\"action\": \"{}\"}}", "x".repeat(2 * MAX_LINE));
    for (text, part) in [
        ("", "hung up"),
        ("{\"action\": \"al", "hung up"),
        ("no JSON\n", "is none"),
        ("{\"action\": \"allow\", \"more\": 1}\n", "is none"),
        ("{\"action\": \"ask\"}\n", "no action"),
        ("{\"action\": \"permit\"}\n", "no action"),
        ("{\"action\": \"deny\", \"errno\": \"EWHAT\"}\n", "no errno"),
        (&long, "too long"),
    ] {
        asking.ask(7, 1);
        let (_, mut stream) = accept(&listener);
        stream.write_all(text.as_bytes()).unwrap();
        drop(stream);
        let error = asking.error();
        assert!(error.contains(part), "{text}: {error}");
    }
    asking.ask(8, 2);
    assert!(asking.error().contains("No such file"));
    asking.ask(9, 3);
    assert_eq!(asking.error(), "rule 3 asks no program");
    // Garbage of the kernel has no answer, and hurts nothing.
    send(&asking.kernel, b"{", SendFlags::NOSIGNAL).unwrap();
    asking.ask(10, 3);
    assert_eq!(asking.answer().id, 10);
}

#[test]
fn a_program_that_is_silent_or_full_costs_its_time_limit() {
    let (asking, listener) = Asking::new("silent", Duration::from_millis(100));
    asking.ask(1, 1);
    let (_, silent) = accept(&listener);
    assert_eq!(asking.error(), "no answer in time");
    drop(silent);
    // More than the queue of connections holds.
    let many = 200;
    for id in 0..many {
        asking.ask(id, 1);
    }
    for _ in 0..many {
        assert_eq!(asking.error(), "no answer in time");
    }
}
