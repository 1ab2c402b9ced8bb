//! The same over TLS.

use lockstep_core::{Effect, ErrorKind};
use lockstep_lock::Locks;
use lockstep_lock::store::Connect;
use lockstep_redis::Redis;
use lockstep_testkit::servers::{RedisOptions, RedisServer, TlsFiles};

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_an_authority_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let tls = TlsFiles::generate(folder.path()).unwrap();
    let ca = tls.ca.display().to_string();
    let password = Some("c4n4ry".to_owned());
    let options = RedisOptions { tls: Some(tls), password, ..RedisOptions::default() };
    let server = RedisServer::start(options).unwrap();
    let ours = Redis::from_url(&format!("{}?ca_file={ca}", server.url())).unwrap();

    // Handed over by a push, with the queue longer than one.
    let locks = Locks::open(ours).await.unwrap();
    let held = locks.lock("job").await.unwrap();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.lock("job").await.unwrap().release().await.unwrap() })
        })
        .collect();
    held.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap();
    }

    let public = Redis::from_url(&server.url()).unwrap().open(None).await.err().unwrap();
    assert_eq!((public.kind(), public.effect()), (ErrorKind::Config, Effect::None), "{public}");
    assert!(public.to_string().contains("?ca_file="), "{public}");
    assert!(!format!("{public} {public:?}").contains("c4n4ry"), "{public:?}");

    // In the clear where TLS is spoken, which hangs up or stays silent.
    let clear = server.url().replacen("rediss://", "redis://", 1);
    let clear = Redis::from_url(&clear).unwrap().open(None).await.err().unwrap();
    assert!(clear.to_string().contains("rediss://"), "{clear}");
}
