//! URLs, good and bad, and TLS.

use anyhow::{Context, Result};
use lockstep_core::ErrorKind;
use lockstep_etcd::Etcd;
use lockstep_testkit::servers::{EtcdOptions, EtcdServer, TlsFiles};

use super::locks;

#[test]
fn bad_urls_are_refused_with_the_way_out_and_without_their_secrets() {
    for (url, says) in [
        ("redis://host", "etcd://"),
        ("etcd://", "hosts"),
        ("etcd://a,,b", "hosts"),
        ("etcd://host:99999", "hosts"),
        ("etcd://host/locks", "?prefix="),
        ("etcd://host?prefx=a", "prefix, tls"),
        ("etcd://host?tls=yes", "true or false"),
        ("etcd://host?ca_file=/no/such/file", "/no/such/file"),
        ("etcd://host?cert_file=/dev/null", "no PEM"),
        ("etcd://me@host", "password"),
        ("etcd://:s3cret@host", "user"),
        ("etcd://me:s3cret@host?password_file=/x", "exclude"),
        ("etcd://me:s3#cret@host", "percent-encode"),
        ("etcd://me:s3?cret@host", "percent-encode"),
    ] {
        let error = Etcd::from_url(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        let text = error.to_string();
        assert!(text.contains(says), "{url}: {text}");
        assert!(!text.contains("s3") && !text.contains("cret"), "{url}: {text}");
    }
    let debug = format!("{:?}", Etcd::from_url("etcd://me:s3cret@[::1],h:80/?tls=true").unwrap());
    assert_eq!(debug, "Etcd(etcd://[::1]:2379,h:80/?prefix=&tls=true)");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_an_authority_of_ones_own() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let tls = TlsFiles::generate(folder.path())?;
    let server = EtcdServer::start(EtcdOptions { tls: Some(tls), ..EtcdOptions::default() })?;
    locks(&server.url()).await?.lock("secret").await?.release().await?;
    let host = server.address(0);
    let error =
        locks(&format!("etcd://{host}/?tls=true")).await.err().context("not a public authority")?;
    assert!(format!("{error:#}").contains("ca_file"), "{error:#}");
    let error = locks(&format!("etcd://{host}")).await.err().context("it speaks TLS only")?;
    assert!(!format!("{error:#}").is_empty());
    Ok(())
}
