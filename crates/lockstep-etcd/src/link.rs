//! One connection to one of the endpoints, and another one when it fails.
//!
//! Requests are never repeated here: one that was under way when the connection broke has an
//! unknown outcome, and who asked decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use lockstep_core::StoreError;
use parking_lot::Mutex;
use prost::Message;
use tokio::runtime::Handle;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{IntoStreamingRequest, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::change::{self, Change, Changes};
use crate::config::Config;
use crate::error::{self, Failure};
use crate::group::Place;
use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, RangeRequest, RangeResponse, StatusRequest,
    StatusResponse, TxnRequest, TxnResponse,
};

/// How long an answer may take: shorter than what a handle gives a verb, so that a silent member is
/// noticed here, where another one can be tried.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_500);
/// The same where there is another one to be tried within the same verb.
const PATIENCE_OF_MANY: Duration = Duration::from_millis(900);

pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
const RANGE: &str = "/etcdserverpb.KV/Range";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// Why there is no answer; `None`: it did not come in time.
pub(crate) type Unanswered = Option<Status>;

/// A lane's way to the cluster.
pub(crate) struct Link {
    config: Arc<Config>,
    line: Mutex<Option<Line>>,
    dialing: tokio::sync::Mutex<()>,
    /// Where its connections live; the caller's runtime if nothing is said.
    home: Option<Handle>,
    /// Which endpoint is next.
    turn: AtomicUsize,
}

/// One connection.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) wire: Wire,
    /// Also tells this connection from the one that replaces it.
    changes: Arc<Changes>,
}

/// What talks to one member.
#[derive(Clone)]
pub(crate) struct Wire {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    pub(crate) address: Arc<str>,
}

impl Link {
    /// Nothing is connected yet.
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            line: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
            home: None,
            turn: 0.into(),
        }
    }

    /// The same, with connections that live on this runtime, whoever asks first.
    pub(crate) fn at_home(config: Arc<Config>, home: Handle) -> Self {
        Self { home: Some(home), ..Self::new(config) }
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        self.call(TXN, request).await
    }

    /// A transaction that changes the line of one lock. With many at once, those of different locks go
    /// together.
    pub(crate) async fn change(&self, change: Change) -> Result<TxnResponse, Failure> {
        let line = self.line().await?;
        let answer = match line.changes.enter(|| change.clone()) {
            Place::First(_turn) => line.wire.within(self.patience(), TXN, change.request).await,
            // Without an answer: the connection was given up.
            Place::Queued(answer) => answer.await.unwrap_or(Err(None)),
        };
        self.judge(&line, answer)
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call(RANGE, request).await
    }

    /// Sends a request once.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let line = self.line().await?;
        let answer = line.wire.within(self.patience(), path, request).await;
        self.judge(&line, answer)
    }

    fn judge<A>(&self, line: &Line, answer: Result<A, Unanswered>) -> Result<A, Failure> {
        let address = &line.wire.address;
        answer.map_err(|unanswered| match unanswered {
            Some(status) => {
                if error::is_the_connections_fault(&status) {
                    self.give_up(line);
                }
                error::answered(&status, address)
            }
            None => {
                self.give_up(line);
                error::silent(address).into()
            }
        })
    }

    /// Whether another member can be asked.
    pub(crate) fn has_others(&self) -> bool {
        self.config.hosts().len() > 1
    }

    fn patience(&self) -> Duration {
        if self.has_others() { PATIENCE_OF_MANY } else { PATIENCE }
    }

    /// The connection, made now if there is none.
    pub(crate) async fn line(&self) -> Result<Line, StoreError> {
        if let Some(line) = &*self.line.lock() {
            return Ok(line.clone());
        }
        let _turn = self.dialing.lock().await;
        if let Some(line) = &*self.line.lock() {
            return Ok(line.clone());
        }
        let line = self.dial().await?;
        *self.line.lock() = Some(line.clone());
        Ok(line)
    }

    /// The next request goes to another endpoint.
    pub(crate) fn give_up(&self, line: &Line) {
        line.changes.close();
        let mut current = self.line.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(&current.changes, &line.changes)) {
            *current = None;
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The same for whatever connection there is.
    pub(crate) fn give_up_current(&self) {
        if let Some(line) = self.line.lock().take() {
            line.changes.close();
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tries every endpoint once.
    async fn dial(&self) -> Result<Line, StoreError> {
        let hosts = self.config.hosts().len();
        let mut why = Err(error::unreachable("no endpoint"));
        let each = self.patience() / u32::try_from(hosts).unwrap_or(1).clamp(1, 3);
        for _ in 0..hosts {
            let number = self.turn.load(Ordering::Relaxed) % hosts;
            why = match tokio::time::timeout(each, self.dial_one(number)).await {
                Ok(Ok(line)) => return Ok(line),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(error::unreachable(format!(
                    "{} did not answer in time: check host, port, firewall and ?tls=",
                    self.config.hosts()[number]
                ))),
            };
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        why
    }

    async fn dial_one(&self, number: usize) -> Result<Line, StoreError> {
        let address: Arc<str> = self.config.hosts()[number].as_str().into();
        let endpoint = self.config.endpoint(number)?;
        let dialed = match &self.home {
            None => endpoint.connect().await,
            Some(home) => match home.spawn(async move { endpoint.connect().await }).await {
                Ok(dialed) => dialed,
                Err(_) => return Err(error::unreachable("the thread that keeps leases has ended")),
            },
        };
        let channel = dialed.map_err(|error| {
            let why = innermost(&error);
            match why.contains("certificate") {
                true => StoreError::config(
                    error::STORE,
                    format!("TLS with {address} failed: {why}; for a private authority add ?ca_file=/path/ca.pem"),
                ),
                false => error::unreachable(format!("cannot connect to {address}: {why}")),
            }
        })?;
        let mut wire = Wire { channel, token: None, address };
        if let Some((name, password)) = self.config.login()? {
            let login = wire.unary(AUTHENTICATE, AuthenticateRequest { name, password }).await;
            let AuthenticateResponse { token } = login
                .map_err(|status| StoreError::from(error::answered(&status, &wire.address)))?;
            wire.token = token.parse().ok();
        }
        wire.answers().await?;
        let home = self.home.clone().unwrap_or_else(Handle::current);
        let changes = change::group(home, wire.clone(), self.patience());
        Ok(Line { wire, changes })
    }
}

impl Wire {
    /// Waits no longer than this.
    pub(crate) async fn within<Q, A>(
        &self,
        patience: Duration,
        path: &'static str,
        request: Q,
    ) -> Result<A, Unanswered>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        match tokio::time::timeout(patience, self.unary(path, request)).await {
            Ok(answer) => answer.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// A connection alone proves little: the kernel takes it for a member that stands still, and
    /// whether both ends mean the same by TLS shows with the first words.
    async fn answers(&self) -> Result<(), StoreError> {
        let status: Result<StatusResponse, Status> = self.unary(STATUS, StatusRequest {}).await;
        match status {
            Ok(_) => Ok(()),
            // Later versions do not tell everybody, but they answer.
            Err(status) if !error::is_the_connections_fault(&status) => Ok(()),
            Err(status) => Err(error::unreachable(format!(
                "{} does not answer like etcd ({}): check the URL, and ?tls=",
                self.address,
                status.message()
            ))),
        }
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(innermost(&error)))?;
        let mut request = Request::new(request);
        self.sign(request.metadata_mut());
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    /// Opens a stream in both directions. It resolves with the first answer, so the first request
    /// must be on its way.
    pub(crate) async fn stream<Q, A>(
        &self,
        path: &'static str,
        requests: impl futures_util::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(innermost(&error)))?;
        let mut request = requests.into_streaming_request();
        self.sign(request.metadata_mut());
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        Ok(grpc.streaming(request, PathAndQuery::from_static(path), codec).await?.into_inner())
    }

    fn sign(&self, metadata: &mut tonic::metadata::MetadataMap) {
        if let Some(token) = &self.token {
            metadata.insert("token", token.clone());
        }
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
