//! The policies in force, and their decisions.

use crate::asker::Asker;
use arc_swap::ArcSwapOption;
use decision_log::{DryRun, Entry};
use lock_order::Mutex;
use policy::{Action, Decision, Facts, Kind, Operation, Point, Policy};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use trace::Sink;
use trace_wire::packet::HEADER;
use trace_wire::session::PolicyStatus;

/// Where decisions are recorded.
#[derive(Default)]
pub struct Log {
    /// The queue to the process outside that writes them down.
    pub sink: Option<Sink>,
    /// A file of that process with the number of those that the log did not take, in 8 bytes.
    pub unwritten: Option<File>,
}

impl Log {
    fn unwritten(&self) -> u64 {
        let mut bytes = [0; 8];
        let read = self.unwritten.as_ref().map(|file| file.read_at(&mut bytes, 0));
        if matches!(read, Some(Ok(8))) { u64::from_le_bytes(bytes) } else { 0 }
    }
}

/// Most lines about refusals that a policy without a log leaves on the sandbox's own. A guest can cause any number of them.
const MAX_LINES: usize = 1000;

/// A policy that was loaded.
pub struct Loaded {
    /// The session that it belongs to.
    pub session: String,
    /// The only container that it is about.
    pub container: Option<String>,
    policy: Policy,
    sha256: [u8; 32],
    log: Log,
    asker: Option<Asker>,
    /// Decisions by the place of their action in [`Action::NAMES`].
    counts: [AtomicU64; Action::NAMES.len()],
    dry_run: AtomicU64,
    asked: AtomicU64,
    unanswered: AtomicU64,
    /// What was said of refusals.
    said: Mutex<BTreeSet<String>>,
}

impl Loaded {
    /// Reads the text of a policy. The error has all that is wrong with it.
    pub fn new(
        session: &str,
        container: Option<String>,
        text: &str,
        log: Log,
        asker: Option<Asker>,
    ) -> Result<Loaded, String> {
        let policy = Policy::parse(text).map_err(|all| {
            let lines: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("policy: {}", lines.join("; "))
        })?;
        Ok(Loaded {
            session: session.into(),
            container,
            policy,
            sha256: Sha256::digest(text).into(),
            log,
            asker,
            counts: Default::default(),
            dry_run: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            said: Mutex::default(),
        })
    }

    /// Its rules, and what it has decided.
    pub fn status(&self) -> PolicyStatus {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = Action::NAMES.into_iter().zip(self.counts.iter().map(load));
        PolicyStatus {
            sha256: self.sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
            rules: self.policy.rules().len() as u32,
            decisions: counts
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| (name.into(), count))
                .collect(),
            dry_run: load(&self.dry_run),
            asked: load(&self.asked),
            unanswered: load(&self.unanswered),
            unwritten: self.log.unwritten(),
        }
    }

    /// The log's queue.
    pub fn log(&self) -> Option<&Sink> {
        self.log.sink.as_ref()
    }

    fn is_about(&self, container: &str) -> bool {
        self.container.as_deref().is_none_or(|only| only == container)
    }

    fn count(&self, action: Action) {
        if let Some(count) = Action::NAMES.iter().position(|name| *name == action.name()) {
            self.counts[count].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Decides, has a program outside decide where the rules say so, and records it.
    fn decide(
        &self,
        operation: &Operation<'_>,
        entry: &dyn Fn() -> Entry,
        stop: &dyn Fn() -> bool,
    ) -> Action {
        let Decision { action, rule, dry_run } = self.policy.decide(operation);
        if action == Action::Allow && dry_run.is_none() {
            return action;
        }
        let mut entry = entry();
        entry.rule = rule.map(|rule| u32::from(rule) + 1);
        entry.rule_name = rule.and_then(|rule| self.policy.rules().get(usize::from(rule))?.name.clone());
        entry.dry_run = dry_run.map(|would| DryRun {
            action: would.action.name().into(),
            rule: would.rule.map(|rule| u32::from(rule) + 1),
        });
        let rule_asks = action == Action::Ask;
        let action = match action {
            Action::Ask => self.ask(rule, &mut entry, stop),
            action => action,
        };
        entry.action = action.name().into();
        if let Action::Deny(errno) = action {
            entry.errno = Some(errno.name().into());
        }
        if action != Action::Allow || rule_asks {
            self.count(action);
        }
        if dry_run.is_some() {
            self.dry_run.fetch_add(1, Ordering::Relaxed);
        }
        self.record(&entry);
        if self.log.sink.is_none() && !matches!(action, Action::Allow | Action::Log) {
            self.say(refusal(&entry));
        }
        action
    }

    /// Says a line once, for a user without a log of decisions.
    fn say(&self, line: String) {
        let mut said = self.said.lock();
        let fresh = said.len() < MAX_LINES && said.insert(line.clone());
        let last = fresh && said.len() == MAX_LINES;
        drop(said);
        if fresh {
            log::warn!("{line}");
        }
        if last {
            log::warn!("policy: further refusals are not told; use --policy-log");
        }
    }

    fn ask(&self, rule: Option<u16>, entry: &mut Entry, stop: &dyn Fn() -> bool) -> Action {
        entry.action = Action::Ask.name().into();
        let Some(ask) = self.policy.ask(rule) else { return Action::Deny(abi::Errno::EACCES) };
        let answer = match &self.asker {
            Some(asker) => asker.ask(entry.rule, entry, ask.timeout, stop),
            None => Err("there is no process that asks".into()),
        };
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (action, text) = match answer {
            Ok(action) => (action, action.name().into()),
            Err(error) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                (ask.default, error)
            }
        };
        entry.answer = Some(text);
        action
    }

    fn record(&self, entry: &Entry) {
        let Ok(text) = serde_json::to_vec(entry) else { return };
        let Some(log) = &self.log.sink else {
            log::info!(target: "policy", "{}", String::from_utf8_lossy(&text));
            return;
        };
        let mut packet = vec![0; HEADER];
        packet[0] = HEADER as u8;
        packet.extend_from_slice(&text);
        log.send(&packet);
    }
}

/// A refusal as a line for the user.
fn refusal(entry: &Entry) -> String {
    let by = match (entry.rule, &entry.rule_name) {
        (Some(_), Some(name)) => format!("the rule {name:?}"),
        (Some(number), None) => format!("rule {number}"),
        (None, _) => "its default".into(),
    };
    let what = [entry.path.as_ref(), entry.second_path.as_ref(), entry.address.as_ref()];
    let what: String = what.into_iter().flatten().map(|object| format!(" {object:?}")).collect();
    let program = entry.executable.as_ref().map_or_else(String::new, |program| format!(" of {program:?}"));
    let done = match &entry.errno {
        Some(errno) => format!("fails with {errno}"),
        None => format!("leads to {}", entry.action),
    };
    format!("policy: {}{what}{program} {done}: {by} says so", entry.point)
}

/// What is to be done about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It fails or worse: never [`Action::Allow`], [`Action::Log`] or [`Action::Ask`].
    Refused(Action),
}

/// The policies of a kernel.
#[derive(Default)]
pub struct Enforcer {
    /// Bits of operations that a policy is about.
    operations: Arc<AtomicU64>,
    loaded: ArcSwapOption<Vec<Arc<Loaded>>>,
    changes: Mutex<()>,
}

impl Enforcer {
    /// With a word for the bits that [`Enforcer::concerns`] looks at, for code that has the word and not the enforcer.
    pub fn new(operations: Arc<AtomicU64>) -> Enforcer {
        Enforcer { operations, ..Enforcer::default() }
    }

    /// Whether some policy is about this operation.
    #[inline]
    pub fn concerns(&self, kind: Kind) -> bool {
        self.operations.load(Ordering::Relaxed) >> kind as u8 & 1 != 0
    }

    /// Whether there is a policy.
    pub fn is_active(&self) -> bool {
        self.loaded.load().is_some()
    }

    /// Whether some policy is about the entry of this system call.
    pub fn concerns_call(&self, nr: u16) -> bool {
        self.loaded
            .load()
            .iter()
            .flat_map(|all| all.iter())
            .any(|loaded| loaded.policy.concerns(Point::Call(nr)))
    }

    /// What must be known of an operation at this point in a container.
    pub fn needs(&self, point: Point, container: &str) -> Facts {
        let all = self.loaded.load();
        let about = all.iter().flat_map(|all| all.iter()).filter(|loaded| loaded.is_about(container));
        about.fold(Facts::empty(), |facts, loaded| facts | loaded.policy.needs(point))
    }

    /// Decides about an operation in a container: the first policy that refuses it holds. `entry` is what a record says
    /// of it, `stop` whether the caller is to end, so that it does not wait for an answer.
    pub fn decide(
        &self,
        operation: &Operation<'_>,
        entry: &dyn Fn() -> Entry,
        stop: &dyn Fn() -> bool,
    ) -> Verdict {
        let all = self.loaded.load();
        for loaded in all.iter().flat_map(|all| all.iter()) {
            if !loaded.is_about(operation.container) || !loaded.policy.concerns(operation.point) {
                continue;
            }
            match loaded.decide(operation, entry, stop) {
                Action::Allow | Action::Log => {}
                // Never an answer, and never the default of a question.
                Action::Ask => return Verdict::Refused(Action::Deny(abi::Errno::EACCES)),
                action => return Verdict::Refused(action),
            }
        }
        Verdict::Pass
    }

    /// Puts a policy in force, in the place of the one of the same session.
    pub fn load(&self, new: Loaded) {
        let changing = self.changes.lock();
        let mut all = self.others(&new.session);
        all.push(Arc::new(new));
        let old = self.publish(all);
        drop(changing);
        // The end of a log takes locks.
        drop(old);
    }

    /// Ends the policy of a session, if it has one; gives it back, for its log.
    pub fn unload(&self, session: &str) -> Option<Arc<Loaded>> {
        let _changing = self.changes.lock();
        // It outlives the lock.
        let old = self.of(session)?;
        self.publish(self.others(session));
        Some(old)
    }

    /// The policy of a session.
    pub fn of(&self, session: &str) -> Option<Arc<Loaded>> {
        self.loaded.load().iter().flat_map(|all| all.iter()).find(|loaded| loaded.session == session).cloned()
    }

    fn others(&self, session: &str) -> Vec<Arc<Loaded>> {
        let all = self.loaded.load();
        all.iter().flat_map(|all| all.iter()).filter(|loaded| loaded.session != session).cloned().collect()
    }

    /// Puts these in force; gives back those that were.
    fn publish(&self, all: Vec<Arc<Loaded>>) -> Option<Arc<Vec<Arc<Loaded>>>> {
        let concerned =
            |kind: &Kind| all.iter().any(|loaded| loaded.policy.concerns(Point::Operation(*kind)));
        let bits =
            Kind::ALL.iter().filter(|kind| concerned(kind)).fold(0, |bits, kind| bits | 1 << *kind as u8);
        let old = self.loaded.swap((!all.is_empty()).then(|| Arc::new(all)));
        self.operations.store(bits, Ordering::SeqCst);
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::Errno;

    const TEXT: &str =
        "rules:\n  - {name: secrets, point: file/open, path: /etc/shadow, action: deny, errno: EPERM}\n";

    fn open<'a>(path: &'a [u8], container: &'a str) -> Operation<'a> {
        Operation { path: Some(path), container, ..Operation::new(Point::Operation(Kind::FileOpen)) }
    }

    fn verdict(enforcer: &Enforcer, operation: &Operation<'_>) -> Verdict {
        enforcer.decide(operation, &Entry::default, &|| false)
    }

    #[test]
    fn a_policy_holds_while_it_is_loaded() {
        let enforcer = Enforcer::default();
        let shadow = open(b"/etc/shadow", "box");
        assert!(!enforcer.concerns(Kind::FileOpen) && verdict(&enforcer, &shadow) == Verdict::Pass);
        enforcer.load(
            Loaded::new("a", None, TEXT, Log { sink: Some(Sink::null()), ..Log::default() }, None).unwrap(),
        );
        assert!(enforcer.concerns(Kind::FileOpen) && !enforcer.concerns(Kind::FileChdir));
        assert_eq!(verdict(&enforcer, &shadow), Verdict::Refused(Action::Deny(Errno::EPERM)));
        assert_eq!(verdict(&enforcer, &open(b"/etc/passwd", "box")), Verdict::Pass);
        assert_eq!(enforcer.of("a").unwrap().log().unwrap().status().sent, 1);
        let status = enforcer.of("a").unwrap().status();
        assert_eq!((status.rules, status.decisions["deny"], status.dry_run), (1, 1, 0));
        enforcer.load(Loaded::new("a", None, "rules: []", Log::default(), None).unwrap());
        assert!(!enforcer.concerns(Kind::FileOpen) && verdict(&enforcer, &shadow) == Verdict::Pass);
        assert!(enforcer.unload("a").is_some() && enforcer.unload("a").is_none() && !enforcer.is_active());
    }

    #[test]
    fn a_policy_may_be_about_one_container() {
        let enforcer = Enforcer::default();
        enforcer.load(Loaded::new("a", Some("web".into()), TEXT, Log::default(), None).unwrap());
        assert_eq!(verdict(&enforcer, &open(b"/etc/shadow", "db")), Verdict::Pass);
        assert_ne!(verdict(&enforcer, &open(b"/etc/shadow", "web")), Verdict::Pass);
    }

    #[test]
    fn refusals_are_told() {
        let entry = Entry {
            point: "file/open".into(),
            path: Some("/etc/shadow".into()),
            executable: Some("/bin/cat".into()),
            rule: Some(2),
            action: "deny".into(),
            errno: Some("EPERM".into()),
            ..Entry::default()
        };
        let line = r#"policy: file/open "/etc/shadow" of "/bin/cat" fails with EPERM: rule 2 says so"#;
        assert_eq!(refusal(&entry), line);
        let killed = Entry {
            point: "process/exec".into(),
            path: Some("/bin/id\n".into()),
            rule: Some(1),
            rule_name: Some("no id".into()),
            action: "kill-process".into(),
            ..Entry::default()
        };
        let line = r#"policy: process/exec "/bin/id\n" leads to kill-process: the rule "no id" says so"#;
        assert_eq!(refusal(&killed), line);
        // Each once, and no more than some.
        let loaded = Loaded::new("a", None, TEXT, Log::default(), None).unwrap();
        for n in 0..2 * MAX_LINES {
            loaded.say(format!("{}", n / 2));
        }
        assert_eq!(loaded.said.lock().len(), MAX_LINES);
        loaded.say("more".into());
        assert_eq!(loaded.said.lock().len(), MAX_LINES);
    }

    #[test]
    fn mistakes_are_told() {
        assert!(
            Loaded::new("a", None, "rules: 5", Log::default(), None)
                .map(drop)
                .unwrap_err()
                .starts_with("policy: ")
        );
    }
}
