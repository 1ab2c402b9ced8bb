//! The checking side for HTTP: requests carry the fencing token of the lock that they were made
//! under, and a service refuses those whose holder has been replaced.
//!
//! The client sends two headers, which [`headers`] makes from a guard:
//!
//! ```text
//! Lockstep-Lock: stock%3A7         the lock's name, percent-encoded
//! Lockstep-Token: 42               its token
//! ```
//!
//! The service has a [`FenceLayer`] before what it protects:
//!
//! | the request | the answer |
//! |---|---|
//! | has the highest token seen, or a higher one | is the service's own |
//! | has a smaller token | `412 Precondition Failed`, and `Lockstep-Token` says which has been seen |
//! | lacks a header, or has one that cannot be read | `400 Bad Request` |
//! | cannot be judged now | `503 Service Unavailable` |
//!
//! ```
//! use axum::{Router, routing::post};
//! use lockstep_tower::FenceLayer;
//!
//! let app: Router = Router::new()
//!     .route("/stock", post(async || "written"))
//!     .layer(FenceLayer::new());
//! ```
//!
//! While a request is being served, one with a higher token waits for its answer: so an old write cannot
//! overtake a new one *within this process* (G3). The memory of [`HighestSeen`] ends with the process, and two
//! processes do not share it; where that matters implement [`Gate`] on what they share, or check
//! in the database, with `sql::verify`.

mod gate;
mod headers;
mod layer;
mod seen;

pub use gate::{Admission, Gate, Refusal};
pub use headers::{LOCK, TOKEN, headers};
pub use layer::{FenceLayer, Fenced};
pub use seen::HighestSeen;
