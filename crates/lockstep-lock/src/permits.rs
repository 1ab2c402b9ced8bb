//! A lock that is made of permits: at most so many of them are out at a time.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::error::LockError;
use crate::guard::Guard;
use crate::locks::Locks;
use crate::request::{Request, options};
use crate::share::Share;

/// A lock that is made of permits; see [`Locks::permits`].
#[derive(Clone)]
pub struct Permits {
    locks: Locks,
    name: String,
    of: u32,
}

impl Permits {
    pub(crate) fn new(locks: &Locks, name: &str, of: u32) -> Self {
        Self { locks: locks.clone(), name: name.to_owned(), of }
    }

    /// Asks for this many permits and waits for them, in the order of arrival: who wants many is
    /// not passed by who wants few.
    pub fn acquire(&self, count: u32) -> PermitsRequest {
        PermitsRequest(self.request(count, true))
    }

    /// Asks once; `None` means that there are not enough, or that somebody waits.
    pub fn try_acquire(&self, count: u32) -> TryPermitsRequest {
        TryPermitsRequest(self.request(count, false))
    }

    fn request(&self, count: u32, wait: bool) -> Request {
        let share = Share::Permits { count, of: self.of };
        Request::new(&self.locks, &self.name, share, wait)
    }
}

/// Permits that are being asked for: set what matters, then `.await` it.
///
/// # Cancel safety
/// As for a lock: dropping the future gives back what it may have got.
#[must_use = "a request does nothing until it is awaited"]
pub struct PermitsRequest(Request);

/// The same for permits that are not waited for.
#[must_use = "a request does nothing until it is awaited"]
pub struct TryPermitsRequest(Request);

options!(PermitsRequest);
options!(TryPermitsRequest);

impl PermitsRequest {
    /// Waits at most this long, store and all; the default is for ever.
    pub fn within(mut self, limit: Duration) -> Self {
        self.0.within = Some(limit);
        self
    }
}

impl IntoFuture for PermitsRequest {
    type Output = Result<Guard, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.acquire_or_wait())
    }
}

impl IntoFuture for TryPermitsRequest {
    type Output = Result<Option<Guard>, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.acquire())
    }
}
