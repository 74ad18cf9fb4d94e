//! Decisions that a program outside makes.
//!
//! A process outside has the connections to such programs. The kernel sends it a question and waits, for the time that the
//! rule gives. Many threads can wait at once: an answer carries the number of its question.

use abi::{Errno, libc};
use decision_log::Entry;
use lock_order::{Condvar, Mutex};
use policy::Action;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace_wire::ask::{Answer, MAX_PACKET, Question};

/// Most questions that wait for an answer.
const MAX_OPEN: usize = 1024;

/// How long one wait takes before the thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The next try after the channel was full.
const AGAIN: Duration = Duration::from_millis(5);

#[derive(Default)]
struct State {
    next: u64,
    /// Questions without an answer, and answers that were not taken yet.
    open: HashMap<u64, Option<Answer>>,
    /// The process outside has ended.
    over: bool,
}

/// The channel to the process outside.
pub struct Asker {
    channel: Arc<OwnedFd>,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Asker {
    /// With a SOCK_SEQPACKET socket to that process. An error when the host has no thread for it.
    pub fn new(channel: OwnedFd) -> std::io::Result<Asker> {
        let asker = Asker { channel: Arc::new(channel), shared: Arc::default() };
        let (channel, shared) = (asker.channel.clone(), asker.shared.clone());
        let run = move || receive(&channel, &shared);
        std::thread::Builder::new().name("policy answers".into()).stack_size(128 << 10).spawn(run)?;
        Ok(asker)
    }

    /// Asks, and waits at most this long. The error says why there is no answer. `stop`: the caller is to end.
    pub fn ask(
        &self,
        rule: Option<u32>,
        entry: &Entry,
        limit: Duration,
        stop: impl Fn() -> bool,
    ) -> Result<Action, String> {
        let deadline = Instant::now() + limit;
        let (state, changed) = &*self.shared;
        let id = {
            let mut state = state.lock();
            if state.over || state.open.len() >= MAX_OPEN {
                return Err(if state.over {
                    "the process that asks has ended"
                } else {
                    "too many questions"
                }
                .into());
            }
            state.next += 1;
            let id = state.next;
            state.open.insert(id, None);
            id
        };
        let question = serde_json::to_vec(&Question { id, rule, entry }).map_err(|error| error.to_string());
        let sent = question.and_then(|question| {
            loop {
                match hostsys::net::send(&*self.channel, &question, libc::MSG_DONTWAIT) {
                    Ok(_) => break Ok(()),
                    // The process outside has as many questions as it takes.
                    Err(Errno::EAGAIN) if Instant::now() < deadline && !stop() => std::thread::sleep(AGAIN),
                    Err(Errno::EAGAIN) => break Err("no answer in time".to_string()),
                    Err(error) => break Err(format!("the question cannot be sent: {error}")),
                }
            }
        });
        let answer = sent.and_then(|()| {
            let mut state = state.lock();
            loop {
                if let Some(Some(_)) = state.open.get(&id) {
                    return Ok(state.open.remove(&id).flatten());
                }
                let now = Instant::now();
                if state.over || now >= deadline || stop() {
                    return Ok(None);
                }
                changed.wait_until(&mut state, deadline.min(now + LOOK));
            }
        });
        state.lock().open.remove(&id);
        answer?.ok_or_else(|| "no answer in time".to_string()).and_then(action)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // Ends the thread and the process outside.
        let _ = hostsys::net::shutdown(&*self.channel, SHUT_RDWR);
    }
}

/// shutdown(2): both directions.
const SHUT_RDWR: i32 = 2;

/// What an answer says.
fn action(answer: Answer) -> Result<Action, String> {
    if let Some(error) = answer.error {
        return Err(error);
    }
    let name = answer.action.ok_or("the answer has no action")?;
    Ok(match name.as_str() {
        "allow" => Action::Allow,
        "log" => Action::Log,
        "deny" => match answer.errno.as_deref().map(policy::errno_named) {
            None => Action::Deny(Errno::EACCES),
            Some(Some(errno)) => Action::Deny(errno),
            Some(None) => return Err("the answer has an unknown errno".into()),
        },
        "kill-process" => Action::KillProcess,
        "kill-container" => Action::KillContainer,
        "freeze" => Action::Freeze,
        _ => return Err("the answer has an unknown action".into()),
    })
}

/// Takes the answers until the channel ends.
fn receive(channel: &OwnedFd, shared: &(Mutex<State>, Condvar)) {
    let mut buffer = vec![0; MAX_PACKET];
    while let Ok(packet) = hostsys::one_fd::receive(channel, &mut buffer) {
        if packet.len == 0 {
            break;
        }
        let text = buffer.get(..packet.len).unwrap_or_default();
        let Ok(answer) = serde_json::from_slice::<Answer>(text) else { continue };
        let mut state = shared.0.lock();
        // A question that is not waited for any more has no place.
        if let Some(place) = state.open.get_mut(&answer.id) {
            *place = Some(answer);
        }
        drop(state);
        shared.1.notify_all();
    }
    shared.0.lock().over = true;
    shared.1.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn answers(with: &'static str) -> Result<Action, String> {
        let (ours, theirs) = pair();
        let asker = Asker::new(ours).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut buffer = [0; 1024];
                let (n, _) = recv(&theirs, &mut buffer, RecvFlags::empty()).unwrap();
                let question: serde_json::Value = serde_json::from_slice(&buffer[..n]).unwrap();
                assert_eq!(
                    (&question["rule"], &question["entry"]["point"]),
                    (&3.into(), &"file/open".into())
                );
                // An answer to another question does not count.
                send(&theirs, br#"{"id": 99, "action": "allow"}"#, SendFlags::empty()).unwrap();
                send(&theirs, with.as_bytes(), SendFlags::empty()).unwrap();
                std::thread::sleep(Duration::from_millis(400));
            });
            let entry = Entry { point: "file/open".into(), ..Entry::default() };
            asker.ask(Some(3), &entry, Duration::from_millis(300), || false)
        })
    }

    #[test]
    fn answers_are_believed_when_they_make_sense() {
        assert_eq!(answers(r#"{"id": 1, "action": "allow"}"#), Ok(Action::Allow));
        assert_eq!(
            answers(r#"{"id": 1, "action": "deny", "errno": "EPERM"}"#),
            Ok(Action::Deny(Errno::EPERM))
        );
        assert_eq!(answers(r#"{"id": 1, "action": "deny"}"#), Ok(Action::Deny(Errno::EACCES)));
        assert!(answers(r#"{"id": 1, "action": "deny", "errno": "ENOSUCH"}"#).unwrap_err().contains("errno"));
        assert!(answers(r#"{"id": 1, "action": "ask"}"#).unwrap_err().contains("unknown action"));
        assert!(answers(r#"{"id": 1, "error": "gone"}"#).unwrap_err().contains("gone"));
        assert!(answers("nonsense").unwrap_err().contains("in time"));
    }

    #[test]
    fn a_full_channel_costs_no_more_than_the_limit() {
        let (ours, _theirs) = pair();
        let asker = Asker::new(ours).unwrap();
        while hostsys::net::send(&*asker.channel, &[0; 4096], libc::MSG_DONTWAIT).is_ok() {}
        let ask = |limit, stopped| asker.ask(None, &Entry::default(), limit, || stopped);
        assert!(ask(Duration::from_millis(50), false).unwrap_err().contains("in time"));
        assert!(ask(Duration::from_secs(3600), true).unwrap_err().contains("in time"));
    }

    #[test]
    fn without_a_process_there_is_no_answer() {
        let (ours, theirs) = pair();
        drop(theirs);
        let asker = Asker::new(ours).unwrap();
        let asked = asker.ask(None, &Entry::default(), Duration::from_secs(5), || false);
        assert!(asked.is_err());
    }
}
