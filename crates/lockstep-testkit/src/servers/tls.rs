//! Certificates for servers on 127.0.0.1.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::programs;

/// A certificate for `127.0.0.1` and `localhost`, its key, and the authority that signed it.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The server's certificate (PEM).
    pub cert: PathBuf,
    /// The server's private key (PEM).
    pub key: PathBuf,
    /// The authority a client has to trust (PEM).
    pub ca: PathBuf,
}

impl TlsFiles {
    /// Makes a new authority and a certificate signed by it, valid for two days.
    pub fn generate(folder: &Path) -> Result<TlsFiles> {
        fs::create_dir_all(folder)?;
        let file = |name: &str| folder.join(name);
        // A self-signed certificate would be shorter, but strict clients refuse a server that
        // shows the certificate of an authority as its own.
        openssl(
            folder,
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lockstep-test-ca -keyout ca.key -out ca.pem",
        )?;
        openssl(
            folder,
            "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
        )?;
        fs::write(
            file("server.ext"),
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n",
        )?;
        openssl(
            folder,
            "x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile server.ext -out server.pem",
        )?;
        Ok(TlsFiles { cert: file("server.pem"), key: file("server.key"), ca: file("ca.pem") })
    }
}

fn openssl(folder: &Path, args: &str) -> Result<()> {
    let output = Command::new(programs::find("openssl")?)
        .args(args.split(' '))
        .current_dir(folder)
        .output()
        .context("cannot run openssl")?;
    if !output.status.success() {
        bail!("openssl {args}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::{RedisOptions, RedisServer};

    #[test]
    fn redis_shows_a_certificate_its_authority_vouches_for() {
        let folder = tempfile::tempdir().unwrap();
        let tls = TlsFiles::generate(folder.path()).unwrap();
        let ca = tls.ca.clone();
        let options = RedisOptions { tls: Some(tls), ..RedisOptions::default() };
        let server = RedisServer::start(options).unwrap();
        let address = server.url().strip_prefix("rediss://").unwrap().to_owned();
        let output = Command::new("openssl")
            .args(["s_client", "-verify_return_error", "-verify_ip", "127.0.0.1"])
            .args(["-connect", &address, "-CAfile"])
            .arg(ca)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
    }
}
