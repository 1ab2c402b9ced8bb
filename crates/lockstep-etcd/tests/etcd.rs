//! What is particular to etcd: others who lock there, faults of the cluster, and what a lock costs.

mod etcd {
    mod cluster;
    mod costs;
    mod faults;
    mod others;
    mod settings;

    use std::time::Duration;

    use anyhow::Result;
    use lockstep_etcd::Etcd;
    use lockstep_lock::{Locks, Options};
    use lockstep_testkit::servers::{EtcdOptions, EtcdServer};

    /// How long anything may take that shall come at all.
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
        let late = |_| panic!("did not happen within {PATIENCE:?}: {what}");
        tokio::time::timeout(PATIENCE, future.into_future()).await.unwrap_or_else(late)
    }

    /// Asks again and again until it is so.
    async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        soon(what, async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    fn server() -> EtcdServer {
        EtcdServer::start(EtcdOptions::default()).expect("a private etcd")
    }

    /// A client of its own.
    async fn locks(url: &str) -> Result<Locks> {
        let connect = std::sync::Arc::new(Etcd::from_url(url)?);
        let locks = Locks::open_with(connect, Options::default()).await?;
        Ok(locks.with_ttl(Duration::from_secs(3)))
    }

    /// The keys under a name, in order, and their leases.
    fn keys(server: &EtcdServer, name: &str) -> Vec<(String, u64)> {
        let prefix = format!("{name}/");
        let said = server
            .ask(&["get", "--prefix", "--keys-only", "-w", "fields", &prefix])
            .expect("etcdctl");
        let field = |field: &str| -> Vec<String> {
            let start = format!("\"{field}\" : ");
            let found = said.lines().filter_map(|line| line.strip_prefix(&start));
            found.map(|value| value.trim_matches('"').to_owned()).collect()
        };
        let leases = field("Lease").into_iter().map(|lease| lease.parse().expect("a number"));
        field("Key").into_iter().zip(leases).collect()
    }
}
