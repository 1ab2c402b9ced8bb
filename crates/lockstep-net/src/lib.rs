//! Connections of those of Lockstep's clients that are its own: TCP, with or without TLS. Which protocol
//! is spoken over them is not known here.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
pub use tokio_rustls::client::TlsStream;

/// Whom a TLS connection trusts.
pub type Trust = Arc<ClientConfig>;

/// A peer that has said nothing for this long is probed; no answer to three probes, and it is gone. None is
/// sent to one that has not taken what was sent to it: who waits for an answer needs a limit of its own.
const SILENCE: Duration = Duration::from_secs(5);
const PROBES: Duration = Duration::from_secs(2);

/// The authorities in a file (PEM), or the public ones.
///
/// # Errors
/// What is wrong with the file, without its name.
pub fn authorities(file: Option<&Path>) -> Result<RootCertStore, String> {
    let Some(file) = file else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let pem = std::fs::read(file).map_err(|why| why.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|why| why.to_string())?;
        roots.add(certificate).map_err(|why| why.to_string())?;
    }
    // It would be taken, and then nobody trusted without saying why.
    if roots.is_empty() {
        return Err("there is no PEM certificate in it".to_owned());
    }
    Ok(roots)
}

/// Trusts those [`authorities`], and who has a certificate of theirs in the name that was dialed. The crypto
/// provider is passed by hand: a library must not choose one for the whole process.
///
/// # Errors
/// What is wrong with the file, with the name of the parameter that names it in both of our URLs.
pub fn trust(ca_file: Option<&str>) -> Result<Trust, String> {
    let authorities = authorities(ca_file.map(Path::new))
        .map_err(|why| format!("ca_file {}: {why}", ca_file.unwrap_or_default()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("invariant: this provider has what the versions of TLS need")
        .with_root_certificates(authorities)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Connects to whichever address of the host answers first. What is written is sent at once, and a peer that
/// is gone is noticed.
///
/// # Errors
/// Nobody could be reached.
pub async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?;
    let mut tries = addresses.map(|address| Box::pin(TcpStream::connect(address))).peekable();
    if tries.peek().is_none() {
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address"));
    }
    let (stream, _) = select_ok(tries).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(PROBES).with_retries(3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

/// TLS with `host` over a connection to it.
///
/// # Errors
/// It is not trusted, or does not speak TLS.
pub async fn tls(host: &str, stream: TcpStream, trust: &Trust) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::clone(trust)).connect(name, stream).await
}
