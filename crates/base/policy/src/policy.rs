//! A policy as the kernel asks it.

use crate::diagnostic::Diagnostic;
use crate::parse::{self, File};
use crate::point::{CALLS, Facts, Kind, Point};
use crate::rule::{Action, Ask, Conditions, Operation, Rule};

/// Which rule: its place in [`Policy::rules`].
pub type RuleIndex = u16;

/// What a policy says of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is to be done.
    pub action: Action,
    /// The rule that says so; nothing for the default.
    pub rule: Option<RuleIndex>,
    /// What a rule that only tries would have done. To be recorded.
    pub dry_run: Option<DryRun>,
}

impl Decision {
    /// Nothing to do, nothing to record.
    pub const ALLOW: Decision = Decision { action: Action::Allow, rule: None, dry_run: None };

    /// True when the decision belongs in the log.
    pub fn is_recorded(&self) -> bool {
        self.action != Action::Allow || self.dry_run.is_some()
    }
}

/// A decision that is not acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// What would have been done.
    pub action: Action,
    /// The rule that says so; nothing for the default.
    pub rule: Option<RuleIndex>,
}

/// A rule at a point.
#[derive(Clone, Copy, Debug)]
struct Entry {
    rule: RuleIndex,
    call: Option<u16>,
}

/// The rules at one point.
#[derive(Clone, Debug, Default)]
struct AtPoint {
    entries: Vec<Entry>,
    facts: Facts,
}

/// Rules in a form that decides without allocating.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    default: Action,
    dry_run: bool,
    ask: Option<Ask>,
    /// A bit for each operation that a rule or the default concerns.
    operations: u64,
    /// The same for system calls.
    calls: [u64; CALLS / 64],
    at_operation: Vec<AtPoint>,
    /// By number, sorted.
    at_call: Vec<(u16, AtPoint)>,
    /// Rules about what is at a place, which hold for operations that give the place another name.
    places: AtPoint,
    /// Rules that refuse to connect to Unix sockets, which are places, too.
    sockets: Vec<(RuleIndex, Conditions)>,
}

impl Policy {
    /// Reads a file in YAML or JSON.
    pub fn parse(text: &str) -> Result<Policy, Vec<Diagnostic>> {
        parse::file(text).map(Policy::compile)
    }

    fn compile(file: File) -> Policy {
        let File { rules, default, dry_run, ask } = file;
        let mut policy = Policy {
            rules: Vec::new(),
            default,
            dry_run,
            ask,
            operations: 0,
            calls: [0; CALLS / 64],
            at_operation: vec![AtPoint::default(); Kind::ALL.len()],
            at_call: Vec::new(),
            places: AtPoint::default(),
            sockets: Vec::new(),
        };
        for (at, rule) in rules.iter().enumerate() {
            policy.enter(at as RuleIndex, rule);
        }
        let refused =
            policy.places.entries.iter().any(|entry| rules[usize::from(entry.rule)].action.refuses());
        match refused {
            true => policy.places.facts |= Facts::PATH,
            false => policy.places = AtPoint::default(),
        }
        for kind in Kind::ALL {
            let ruled = !policy.at_operation[*kind as usize].entries.is_empty();
            let place = kind.moves() && (refused || !policy.sockets.is_empty());
            if ruled || place || (default != Action::Allow && kind.can_be_refused()) {
                policy.operations |= kind.bit();
            }
        }
        policy.rules = rules;
        policy
    }

    fn enter(&mut self, index: RuleIndex, rule: &Rule) {
        let facts = rule.when.facts();
        for target in &rule.targets {
            let at = match target.point {
                Point::Operation(kind) => &mut self.at_operation[kind as usize],
                Point::Call(number) => {
                    self.calls[usize::from(number) / 64] |= 1 << (number % 64);
                    let at = self.at_call.binary_search_by_key(&number, |(known, _)| *known);
                    let at = at.unwrap_or_else(|at| {
                        self.at_call.insert(at, (number, AtPoint::default()));
                        at
                    });
                    &mut self.at_call[at].1
                }
            };
            at.entries.push(Entry { rule: index, call: target.call });
            at.facts |= facts;
        }
        let about_place = rule
            .targets
            .iter()
            .any(|target| matches!(target.point, Point::Operation(kind) if kind.reaches_content()))
            && facts.contains(Facts::PATH);
        let connects =
            rule.targets.iter().any(|target| matches!(target.point, Point::Operation(Kind::NetConnect)));
        if connects && rule.action.refuses() {
            self.sockets.extend(rule.when.socket_places().map(|when| (index, when)));
        }
        if about_place {
            self.places.entries.push(Entry { rule: index, call: None });
            self.places.facts |= facts & (Facts::CALLER | Facts::PATH);
        }
    }

    /// The rules, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What holds for operations that no rule is about. It does not hold for the points of system calls.
    pub fn default_action(&self) -> Action {
        self.default
    }

    /// True when no decision is acted on.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// True when a decision at this point may be other than [`Decision::ALLOW`].
    #[inline]
    pub fn concerns(&self, point: Point) -> bool {
        match point {
            Point::Operation(kind) => self.operations & kind.bit() != 0,
            Point::Call(number) => {
                self.calls.get(usize::from(number) / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
            }
        }
    }

    /// What [`Policy::decide`] looks at there. All else of the [`Operation`] may stay as [`Operation::new`] has it.
    pub fn needs(&self, point: Point) -> Facts {
        match point {
            Point::Operation(kind) => {
                let own = self.at_operation[kind as usize].facts;
                let sockets = if self.sockets.is_empty() { Facts::empty() } else { Facts::PATH };
                if kind.moves() { own | self.places.facts | sockets } else { own }
            }
            Point::Call(number) => self.at_call(number).map_or(Facts::empty(), |at| at.facts),
        }
    }

    fn at_call(&self, number: u16) -> Option<&AtPoint> {
        let at = self.at_call.binary_search_by_key(&number, |(known, _)| *known).ok()?;
        self.at_call.get(at).map(|(_, at)| at)
    }

    /// Decides. The first rule that matches holds, and the default without one.
    ///
    /// A rule that only tries (`dry_run`) does not end the search: the decision is that of the rules behind it.
    pub fn decide(&self, operation: &Operation<'_>) -> Decision {
        if !self.concerns(operation.point) {
            return Decision::ALLOW;
        }
        let (at, kind) = match operation.point {
            Point::Operation(kind) => (self.at_operation.get(kind as usize), Some(kind)),
            Point::Call(number) => (self.at_call(number), None),
        };
        let mut tried = None;
        let own = at.and_then(|at| {
            self.first(&mut tried, &at.entries, |entry, rule| {
                (entry.call.is_none() || entry.call == operation.call) && rule.when.hold(operation)
            })
        });
        let place = || match kind {
            Some(kind) if kind.moves() => self.place(&mut tried, kind, operation),
            _ => None,
        };
        let found = own.or_else(place);
        let default = match kind {
            Some(kind) if kind.can_be_refused() => self.default,
            _ => Action::Allow,
        };
        let action = found.map_or(default, |(_, action)| action);
        let rule = found.map(|(index, _)| index);
        if self.dry_run {
            let would =
                tried.or((rule.is_some() || action != Action::Allow).then_some(DryRun { action, rule }));
            return Decision {
                dry_run: would.filter(|would| would.action != Action::Allow),
                ..Decision::ALLOW
            };
        }
        Decision { action, rule, dry_run: tried.filter(|would| would.action != Action::Allow) }
    }

    /// The first rule that holds, and the first of those that only try.
    fn first(
        &self,
        tried: &mut Option<DryRun>,
        entries: &[Entry],
        holds: impl Fn(&Entry, &Rule) -> bool,
    ) -> Option<(RuleIndex, Action)> {
        for entry in entries {
            let Some(rule) = self.rules.get(usize::from(entry.rule)) else { continue };
            if !holds(entry, rule) {
                continue;
            }
            if !rule.dry_run {
                return Some((entry.rule, rule.action));
            }
            let would = DryRun { action: rule.action, rule: Some(entry.rule) };
            tried.get_or_insert(would);
        }
        None
    }

    /// What rules about a place say of giving it another name. An `allow` counts when it holds for the caller and for
    /// all ways to the place; a refusal counts for all callers, since another may use the new name.
    fn place(
        &self,
        tried: &mut Option<DryRun>,
        kind: Kind,
        operation: &Operation<'_>,
    ) -> Option<(RuleIndex, Action)> {
        let found = self.first(tried, &self.places.entries, |_, rule| match rule.action.refuses() {
            true => rule.when.escapes(kind, operation),
            false => {
                let all = rule.targets.iter().all(|target| target.call.is_none());
                all && !rule.when.narrow()
                    && !operation.directory
                    && rule.when.path_holds(operation.path)
                    && rule.when.caller_holds(operation)
            }
        });
        if let Some(refused) = found.filter(|(_, action)| action.refuses()) {
            return Some(refused);
        }
        for (index, _) in self.sockets.iter().filter(|(_, when)| when.escapes(kind, operation)) {
            let Some(rule) = self.rules.get(usize::from(*index)) else { continue };
            if !rule.dry_run {
                return Some((*index, rule.action));
            }
            tried.get_or_insert(DryRun { action: rule.action, rule: Some(*index) });
        }
        None
    }

    /// How to ask, for a decision with [`Action::Ask`].
    pub fn ask(&self, rule: Option<RuleIndex>) -> Option<&Ask> {
        match rule {
            Some(rule) => self.rules.get(usize::from(rule))?.ask.as_ref(),
            None => self.ask.as_ref(),
        }
    }
}
