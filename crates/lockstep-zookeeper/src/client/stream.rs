//! A connection to one server, with or without TLS.

use std::io;

use lockstep_net::Trust;
use tokio::io::{AsyncRead, AsyncWrite};

/// A server of the ensemble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Whom to trust; `None` for connections in the clear.
pub(crate) type Tls = Option<Trust>;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(crate) async fn dial(server: &Server, tls: &Tls) -> io::Result<Box<dyn Duplex>> {
    let tcp = lockstep_net::tcp(&server.host, server.port).await?;
    match tls {
        None => Ok(Box::new(tcp)),
        Some(trust) => Ok(Box::new(lockstep_net::tls(&server.host, tcp, trust).await?)),
    }
}
