//! Entrance for `fuzz/`: a question of a guest and a name server's answer.

use crate::dns::{Answer, Question};

/// What came of a question (whether it is one, how many addresses the answer has) and of each text that is sent on.
pub fn names(question: &[u8], answer: &[u8]) -> (bool, Option<usize>, usize) {
    let Some(asked) = Question::parse(question) else { return (false, None, 0) };
    let query = asked.query(1);
    let sent = Question::parse(&query).expect("a query of our own is one");
    assert_eq!((&sent.name, sent.kind), (&asked.name, asked.kind), "and asks for the same");
    assert_eq!(Question::parse(&sent.query(1)), Some(sent), "and says nothing else");
    let found = Answer::parse(answer, 1, &asked);
    let relayed = asked.relay(answer);
    assert!(relayed.len() <= answer.len().max(4096));
    (true, found.map(|answer| answer.addresses.len()), relayed.len() / 64)
}
