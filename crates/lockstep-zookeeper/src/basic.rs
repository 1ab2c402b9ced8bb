//! The layout that every introduction shows: one ephemeral node, and everybody waits for it to go.
//!
//! It is here to be shared with programs that do the same, and to be measured: there is no order, and a
//! release wakes all who wait, of whom all but one go back to sleep.

use lockstep_core::StoreError;
use lockstep_core::time::Clock;
use lockstep_lock::Share;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::store::{Answer, Claim};

use crate::book::Stage;
use crate::client::Failure;
use crate::client::wire::{Code, Mode, Op, Reply, Stat};
use crate::error::{self, STORE};
use crate::names::BASIC;
use crate::note::Note;
use crate::store::{Confirmed, Lane, TRIES};

impl Lane {
    pub(crate) async fn ask_basic(&self, claim: &Claim) -> Result<Answer, StoreError> {
        if claim.share != Share::Exclusive {
            return Err(StoreError::config(STORE, "?layout=basic has neither readers nor permits"));
        }
        let until = SystemClock.now() + claim.ttl;
        let directory = self.engine.config.names.directory(&claim.key);
        let path = format!("{directory}/{BASIC}");
        for _ in 0..TRIES {
            if let Some(record) = self.remembered(claim) {
                let token = Some(record.token);
                match self.confirm(claim, record, until).await? {
                    Confirmed::Yes(_) => return Ok(Answer::Granted { token }),
                    Confirmed::Broken(reason) => return Ok(Answer::Broken { reason }),
                    Confirmed::Gone => continue,
                }
            }
            let session = self.session_for(claim).await?;
            let failed = |failure| error::failed(failure, &path);
            let (id, _) = session.known().await.map_err(failed)?;
            let create = Op::Create {
                path: path.clone(),
                data: Note::new(claim).write(),
                acl: self.engine.config.acl(),
                mode: Mode::Ephemeral,
            };
            let look = Op::GetData { path: path.clone(), watch: claim.wait };
            {
                // Written down before it is sent: the notice may be faster than the answer.
                let mut book = self.engine.book.lock();
                book.may_have(claim.id, &session);
                if let (true, Some(inbox)) = (claim.wait, &self.inbox) {
                    book.stand_by(claim.id, session.serial, &path, inbox.clone());
                }
            }
            let [made, seen] = session.send([create, look]);
            let mine = |stat: Stat| {
                let mut record =
                    self.record(claim, Note::new(claim), &directory, BASIC.into(), stat, &session);
                record.stage = Stage::Holds;
                let token = Some(record.token);
                self.engine.book.lock().insert(claim.id, record, until);
                self.engine.due.notify_one();
                Answer::Granted { token }
            };
            match made.get().await {
                Ok(Reply::Created { stat, .. }) => return Ok(mine(stat)),
                Ok(_) => return Err(error::baffled(&path)),
                Err(Failure::Refused(Code::NO_NODE)) => {
                    self.engine.book.lock().is_certain(claim.id);
                    self.make_directory(&session, &directory).await?;
                    continue;
                }
                Err(Failure::Refused(Code::NODE_EXISTS)) => {}
                Err(failure) => return Err(self.not_made(claim.id, failure, &path)),
            }
            match seen.get().await {
                Ok(Reply::Data { data, stat }) => {
                    let ours = Note::read(&data).is_some_and(|note| note.claim == claim.id);
                    // A reply was lost before. The node of an older session is nobody's.
                    if ours && stat.owner == id {
                        return Ok(mine(stat));
                    }
                    self.engine.book.lock().is_certain(claim.id);
                    return Ok(match claim.wait {
                        true => Answer::Queued {
                            ahead: 0,
                            holder_left: claim.ttl,
                            behind: Some(lockstep_core::Token::new(stat.czxid as u64)),
                        },
                        false => Answer::Busy,
                    });
                }
                // It went between the two.
                Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => {}
                Err(failure) => return Err(failed(failure)),
            }
        }
        // Others were faster each time; asking again is as good as waiting.
        Ok(match claim.wait {
            true => Answer::Queued { ahead: 0, holder_left: claim.ttl, behind: None },
            false => Answer::Busy,
        })
    }
}
