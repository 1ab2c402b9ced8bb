//! The conformance suite and the stories on a real etcd: one server, and a cluster of three.

use std::sync::{Arc, LazyLock};

use lockstep_etcd::Etcd;
use lockstep_lock::store::Connect;
use lockstep_testkit::servers::{self, EtcdOptions, EtcdServer};
use lockstep_testkit::stories;
use lockstep_testkit::suite::{self, Fact, Subject};

static THREE: LazyLock<EtcdServer> = LazyLock::new(|| {
    let options = EtcdOptions { members: 3, ..EtcdOptions::default() };
    EtcdServer::start(options).expect("a cluster of three")
});

fn connect(url: &str) -> anyhow::Result<Arc<dyn Connect>> {
    Ok(Arc::new(Etcd::from_url(url)?))
}

fn subject(name: &str, url: &str, tenant: &str) -> Subject {
    let prefix = format!("{tenant}-{}/", std::process::id());
    let hosts = url.trim_start_matches("etcd://").to_owned();
    let url = format!("{url}/?prefix={prefix}");
    let ours = url.clone();
    Subject::new(name, move || connect(&ours).expect("a good URL"))
        .with_processes(url, "story_child")
        .with_orphan_check(move || Box::pin(immortals(hosts.clone(), prefix.clone())))
        .without(&[Fact::Deadlocks])
}

/// Keys without a lease: a crash would leave them for ever.
async fn immortals(hosts: String, prefix: String) -> anyhow::Result<Vec<String>> {
    let output = tokio::process::Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &hosts, "get", "--prefix", "--keys-only", "-w", "fields", &prefix])
        .output()
        .await?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut key, mut found) = (String::new(), vec![]);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split_once(" : ") {
            Some(("\"Key\"", name)) => key = name.to_owned(),
            Some(("\"Lease\"", "0")) => found.push(key.clone()),
            _ => {}
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    suite::run(&subject("etcd", &servers::etcd_url(), "suite")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_through_the_stories() {
    stories::run(&subject("etcd", &servers::etcd_url(), "story")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_conform() {
    suite::run(&subject("etcd-three", &THREE.url(), "suite")).await.assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_live_through_the_stories() {
    stories::run(&subject("etcd-three", &THREE.url(), "story")).await.assert_passed();
}

#[test]
fn story_child() {
    stories::child::act(connect);
}
