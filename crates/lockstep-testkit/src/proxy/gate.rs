//! A point in the traffic where a test stops one message until it has looked around.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// A barrier for [`Fault::Hold`](super::Fault::Hold) and
/// [`Fault::HoldReply`](super::Fault::HoldReply). Clones are the same gate.
///
/// An opened gate stays open. A gate that is never opened holds its message until the connection
/// ends, even when every handle of the test is gone.
///
/// ```
/// let gate = lockstep_testkit::proxy::Gate::new();
/// assert!(!gate.is_open());
/// gate.open();
/// assert!(gate.is_open());
/// ```
#[derive(Clone, Default)]
pub struct Gate {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    reached: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Gate {
    /// A closed gate nobody has reached.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until a message stands at the gate, or has passed it. Cancel safe.
    pub async fn wait_until_reached(&self) {
        self.wait_until_reached_by(1).await;
    }

    /// Waits until `messages` messages (of different connections: one connection queues behind its
    /// first) have come to the gate. Cancel safe.
    pub async fn wait_until_reached_by(&self, messages: usize) {
        // The sender lives in `self`, so the channel cannot close under us.
        let _ = self.inner.reached.subscribe().wait_for(|reached| *reached >= messages).await;
    }

    /// Lets everything at the gate pass, and all that comes later.
    pub fn open(&self) {
        self.inner.open.send_replace(true);
    }

    /// Whether [`open`](Self::open) was called.
    pub fn is_open(&self) -> bool {
        *self.inner.open.borrow()
    }

    pub(super) async fn pass(&self) {
        self.inner.reached.send_modify(|reached| *reached += 1);
        let _ = self.inner.open.subscribe().wait_for(|open| *open).await;
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("reached", &*self.inner.reached.borrow())
            .field("open", &self.is_open())
            .finish()
    }
}
