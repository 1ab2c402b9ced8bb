//! A connection to one server, with or without TLS.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
pub(crate) type Tls = Option<Arc<ClientConfig>>;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(crate) async fn dial(server: &Server, tls: &Tls) -> io::Result<Box<dyn Duplex>> {
    let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
    tcp.set_nodelay(true)?;
    let Some(config) = tls else { return Ok(Box::new(tcp)) };
    let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await?;
    Ok(Box::new(stream))
}
