//! Reading one object: from one replica, and from a quorum when its answer is in doubt.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use super::Open;
use super::failures::refuse;
use super::rows::{self, Ask, Found, TryError};
use crate::errors::StoreError;
use crate::lanes::AskError;
use crate::retry::Backoff;
use crate::store::{Consistency, FieldData, Fields, ReadRequest, Record};

/// An empty or damaged answer of a quorum is asked for again: it may have been damaged on its way.
const QUORUM_TRIES: u32 = 3;

/// How the tries of one read stand.
#[derive(Debug)]
struct Tries {
    level: Consistency,
    quorum_answers: u32,
    count: u32,
    /// The node whose answer was not good.
    not: Option<SocketAddr>,
}

/// What follows from an answer.
#[derive(Debug)]
enum Verdict {
    Good(Vec<FieldData>),
    /// One replica may be behind or damaged; a quorum knows better.
    Escalate,
    Repeat,
    Bad(Found),
}

impl Tries {
    const fn new(level: Consistency) -> Self {
        Self {
            level,
            quorum_answers: 0,
            count: 0,
            not: None,
        }
    }

    fn judge(&mut self, found: Found, node: SocketAddr) -> Verdict {
        let doubt = match found {
            Found::Fields(fields) => return Verdict::Good(fields),
            doubt => doubt,
        };
        self.not = Some(node);
        if self.level == Consistency::One {
            self.level = Consistency::Quorum;
            return Verdict::Escalate;
        }
        self.quorum_answers += 1;
        if self.quorum_answers < QUORUM_TRIES {
            return Verdict::Repeat;
        }
        Verdict::Bad(doubt)
    }
}

impl Open {
    pub(super) async fn read(&self, request: &ReadRequest) -> Result<Record, StoreError> {
        let token = rows::token_of(request);
        let owners = self.topology.ring().owners(Some(token));
        let mut tries = Tries::new(request.consistency);
        let mut backoff = Backoff::default();
        loop {
            tries.count += 1;
            let attempts = tries.count;
            match self.read_once(request, &tries, &owners, token).await {
                Ok((found, node)) => match tries.judge(found, node) {
                    Verdict::Good(fields) => {
                        return Ok(Record {
                            object_id: request.object_id,
                            fields,
                            node: Some(node),
                            attempts,
                        });
                    }
                    Verdict::Escalate => _ = self.escalations.fetch_add(1, Ordering::Relaxed),
                    Verdict::Repeat => _ = self.retries.fetch_add(1, Ordering::Relaxed),
                    Verdict::Bad(doubt) => return Err(refuse(request, doubt, node, attempts)),
                },
                Err(error) => {
                    if let TryError::Lane(AskError::Lane { node, .. } | AskError::Silent { node }) =
                        &error
                    {
                        tries.not = Some(*node);
                    }
                    let operation = || format!("reading object {}", request.object_id);
                    self.wait_or_fail(&mut backoff, &error, attempts, operation)
                        .await?;
                }
            }
        }
    }

    async fn read_once(
        &self,
        request: &ReadRequest,
        tries: &Tries,
        owners: &[SocketAddr],
        token: i64,
    ) -> Result<(Found, SocketAddr), TryError> {
        let ask = match &request.fields {
            Fields::All => Ask::AllFields,
            Fields::Named(_) => Ask::NamedFields,
        };
        let statements = self.statements(request.table);
        let statement = statements.for_lanes(&self.session, ask).await?;
        let question = rows::question(statement, request, tries.level, token);
        let asked = self
            .lanes
            .ask(owners, request.size_bytes, tries.not, &question);
        let (pages, node) = asked.await?;
        let found = rows::found(request, pages);
        if matches!(found, Found::Damaged { .. }) {
            self.damaged.fetch_add(1, Ordering::Relaxed);
        }
        Ok((found, node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 9042))
    }

    fn damaged() -> Found {
        Found::Damaged {
            field: String::new(),
            reason: String::new(),
        }
    }

    #[test]
    fn an_empty_or_damaged_answer_goes_to_a_quorum_and_there_three_times() {
        for doubt in [|| Found::Missing(None), damaged] {
            let mut tries = Tries::new(Consistency::One);
            assert!(matches!(tries.judge(doubt(), node(1)), Verdict::Escalate));
            assert_eq!(tries.level, Consistency::Quorum);
            assert_eq!(tries.not, Some(node(1)));
            for n in [2, 3] {
                assert!(matches!(tries.judge(doubt(), node(n)), Verdict::Repeat));
                assert_eq!(tries.not, Some(node(n)));
            }
            assert!(matches!(tries.judge(doubt(), node(1)), Verdict::Bad(_)));
        }
    }

    #[test]
    fn a_good_answer_ends_it_at_any_level() {
        let mut tries = Tries::new(Consistency::Quorum);
        assert!(matches!(tries.judge(damaged(), node(1)), Verdict::Repeat));
        let good = Found::Fields(Vec::new());
        assert!(matches!(tries.judge(good, node(2)), Verdict::Good(_)));
    }
}
