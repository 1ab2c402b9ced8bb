//! The layer: reads the headers, asks the gate, and answers for who is not let in.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use crate::gate::{Gate, Refusal};
use crate::headers::{TOKEN, read};
use crate::seen::HighestSeen;

/// Refuses requests that come from a holder that has been replaced; see the [crate](crate).
#[derive(Clone)]
pub struct FenceLayer {
    gate: Arc<dyn Gate>,
}

/// A service behind a [`FenceLayer`].
#[derive(Clone)]
pub struct Fenced<S> {
    inner: S,
    gate: Arc<dyn Gate>,
}

impl FenceLayer {
    /// A fence with a memory of its own, in this process; its clones share it.
    #[expect(clippy::new_without_default, reason = "two defaults would be two different memories")]
    pub fn new() -> Self {
        Self::with(HighestSeen::new())
    }

    /// A fence that asks somebody else.
    pub fn with(gate: impl Gate) -> Self {
        Self { gate: Arc::new(gate) }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { inner, gate: Arc::clone(&self.gate) }
    }
}

impl<S, Body, Answer> Service<Request<Body>> for Fenced<S>
where
    S: Service<Request<Body>, Response = Response<Answer>> + Clone + Send + 'static,
    S::Future: Send,
    Body: Send + 'static,
    Answer: From<String>,
{
    type Response = Response<Answer>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Answer>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that was found ready is the one to be called.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            let (lock, token) = match read(request.headers()) {
                Ok(both) => both,
                Err(why) => return Ok(answer(StatusCode::BAD_REQUEST, why)),
            };
            let _admission = match gate.admit(&lock, token).await {
                Ok(admission) => admission,
                Err(Refusal::Stale { seen }) => {
                    let why = format!("lock `{lock}` has passed on: {token} came after {seen}");
                    let mut refused = answer(StatusCode::PRECONDITION_FAILED, why);
                    refused.headers_mut().insert(TOKEN, HeaderValue::from(seen.get()));
                    return Ok(refused);
                }
                Err(Refusal::Unknown(why)) => {
                    return Ok(answer(StatusCode::SERVICE_UNAVAILABLE, why));
                }
            };
            inner.call(request).await
        })
    }
}

fn answer<Answer: From<String>>(status: StatusCode, why: String) -> Response<Answer> {
    let mut answer = Response::new(Answer::from(why));
    *answer.status_mut() = status;
    answer
}
