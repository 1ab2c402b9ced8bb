//! Requests that go together: one by one while few are under way, and what gathers meanwhile as one. Who is
//! alone pays nothing for it and waits for nobody.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Sends several requests as one; as many answers, in the same order.
pub(crate) type Carry<Q, A> =
    Box<dyn Fn(Vec<Q>) -> Pin<Box<dyn Future<Output = Vec<A>> + Send>> + Send + Sync>;

/// What one connection has under way, and what waits for it.
pub(crate) struct Group<Q, A> {
    limits: Limits<Q>,
    carry: Carry<Q, A>,
    home: Handle,
    state: Mutex<State<Q, A>>,
}

/// When requests go together.
pub(crate) struct Limits<Q> {
    /// So many are under way at once before others have to wait.
    pub(crate) width: usize,
    /// So many go together at most.
    pub(crate) most: usize,
    /// Whether a request may go together with these.
    pub(crate) together: fn(&[Q], &Q) -> bool,
}

struct State<Q, A> {
    under_way: usize,
    waiting: VecDeque<(Q, oneshot::Sender<A>)>,
}

/// What to do with a request.
pub(crate) enum Place<Q: Send + 'static, A: Send + 'static> {
    /// Send it, and keep this until it was answered.
    First(Turn<Q, A>),
    /// It is sent with others, unless this is dropped before; the answer comes here, and never if the
    /// connection is given up.
    Queued(oneshot::Receiver<A>),
}

/// The right to have one request under way; dropping it passes it on.
pub(crate) struct Turn<Q: Send + 'static, A: Send + 'static>(Arc<Group<Q, A>>);

impl<Q: Send + 'static, A: Send + 'static> Group<Q, A> {
    /// A group whose requests are carried on this runtime.
    pub(crate) fn new(home: Handle, limits: Limits<Q>, carry: Carry<Q, A>) -> Arc<Self> {
        let state = Mutex::new(State { under_way: 0, waiting: VecDeque::new() });
        Arc::new(Self { limits, carry, home, state })
    }

    /// Takes a request in; `make` is called only if it has to wait.
    pub(crate) fn enter(self: &Arc<Self>, make: impl FnOnce() -> Q) -> Place<Q, A> {
        let mut state = self.state.lock();
        if state.under_way < self.limits.width {
            state.under_way += 1;
            return Place::First(Turn(Arc::clone(self)));
        }
        let (tell, answer) = oneshot::channel();
        state.waiting.push_back((make(), tell));
        Place::Queued(answer)
    }

    /// The connection is given up: what waits for it is not sent, and has no answer.
    pub(crate) fn close(&self) {
        self.state.lock().waiting.clear();
    }

    /// What goes next; if nothing waits, one less is under way.
    fn next(&self) -> Option<(Vec<Q>, Vec<oneshot::Sender<A>>)> {
        let mut state = self.state.lock();
        let (mut batch, mut tells, mut later) = (vec![], vec![], VecDeque::new());
        while batch.len() < self.limits.most
            && let Some((one, tell)) = state.waiting.pop_front()
        {
            // Whoever has given up is giving back what it may have got; what it asked for must not
            // arrive after that.
            if tell.is_closed() {
                continue;
            }
            if (self.limits.together)(&batch, &one) {
                batch.push(one);
                tells.push(tell);
            } else {
                later.push_back((one, tell));
            }
        }
        while let Some(one) = later.pop_back() {
            state.waiting.push_front(one);
        }
        if batch.is_empty() {
            state.under_way -= 1;
            return None;
        }
        Some((batch, tells))
    }
}

impl<Q: Send + 'static, A: Send + 'static> Drop for Turn<Q, A> {
    fn drop(&mut self) {
        let Some((batch, tells)) = self.0.next() else { return };
        let turn = Turn(Arc::clone(&self.0));
        self.0.home.spawn(async move {
            let answers = (turn.0.carry)(batch).await;
            for (tell, answer) in tells.into_iter().zip(answers) {
                // Fails if nobody listens any more, which is theirs to decide.
                let _ = tell.send(answer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Batches = Arc<Mutex<Vec<Vec<u32>>>>;

    /// Answers each number with its double.
    fn group(width: usize, most: usize) -> (Arc<Group<u32, u32>>, Batches) {
        let carried = Batches::default();
        let log = Arc::clone(&carried);
        let together = |batch: &[u32], one: &u32| batch.iter().all(|it| it % 10 != one % 10);
        let carry: Carry<u32, u32> = Box::new(move |batch| {
            log.lock().push(batch.clone());
            Box::pin(async move { batch.into_iter().map(|it| it * 2).collect() })
        });
        (Group::new(Handle::current(), Limits { width, most, together }, carry), carried)
    }

    fn first(place: Place<u32, u32>) -> Turn<u32, u32> {
        match place {
            Place::First(turn) => turn,
            Place::Queued(_) => panic!("it should go at once"),
        }
    }

    fn queued(place: Place<u32, u32>) -> oneshot::Receiver<u32> {
        match place {
            Place::Queued(answer) => answer,
            Place::First(_) => panic!("it should wait"),
        }
    }

    #[tokio::test]
    async fn what_gathers_goes_together_and_each_gets_its_own_answer() {
        let (group, carried) = group(1, 3);
        let turn = first(group.enter(|| panic!("who goes first is not copied")));
        let answers: Vec<_> = (1..=4).map(|n| queued(group.enter(|| n))).collect();
        drop(turn);
        for (n, answer) in (1..=4).zip(answers) {
            assert_eq!(answer.await, Ok(n * 2));
        }
        assert_eq!(*carried.lock(), [vec![1, 2, 3], vec![4]]);
        drop(first(group.enter(|| 0)));
        drop(first(group.enter(|| 0)));
    }

    #[tokio::test]
    async fn what_cannot_go_together_goes_after_each_other_in_order() {
        let (group, carried) = group(1, 8);
        let turn = first(group.enter(|| 0));
        let answers: Vec<_> = [1, 11, 2, 21].map(|n| queued(group.enter(|| n))).into();
        drop(turn);
        for answer in answers {
            answer.await.expect("an answer");
        }
        assert_eq!(*carried.lock(), [vec![1, 2], vec![11], vec![21]]);
    }

    #[tokio::test]
    async fn who_has_given_up_is_not_served_and_keeps_nobody_waiting() {
        let (group, carried) = group(2, 8);
        let turns = [first(group.enter(|| 0)), first(group.enter(|| 0))];
        drop(queued(group.enter(|| 1)));
        let answer = queued(group.enter(|| 2));
        drop(turns);
        assert_eq!(answer.await, Ok(4));
        assert_eq!(*carried.lock(), [vec![2]]);
        let again = [first(group.enter(|| 0)), first(group.enter(|| 0))];
        drop(again);
    }
    #[tokio::test]
    async fn nobody_waits_for_a_connection_that_is_given_up() {
        let (group, carried) = group(1, 8);
        let turn = first(group.enter(|| 0));
        let mut answer = queued(group.enter(|| 1));
        group.close();
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        drop(turn);
        drop(first(group.enter(|| 0)));
        assert!(carried.lock().is_empty());
    }
}
