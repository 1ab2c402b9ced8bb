//! etcd: a raw transaction and a delete, and etcd's own lock service beside them.

use std::time::Duration;

use anyhow::{Context, Result};
use http::uri::PathAndQuery;
use lockstep_testkit::servers::{EtcdOptions, EtcdServer};
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::ours;
use crate::measure::{self, Options, Rate, Work};
use crate::table::{Goal, Table};

pub(crate) fn rows(options: &Options, table: &mut Table) -> Result<()> {
    let server = EtcdServer::start(EtcdOptions::default())?;
    let (url, host, time) = (server.url(), server.address(0), options.time);
    for (tasks, name) in [(1, "1 client"), (64, "64 tasks")] {
        table.row(
            options,
            &format!("etcd, free, {name} / raw transaction and delete"),
            Goal::AtLeast(0.9),
            || raw(&host, tasks, time),
            || ours::free(&url, tasks, time),
        )?;
    }
    // The lock service waits for a timer, so its row says as much about the disk as about us. This one
    // does not: where one client made 1,096 raw pairs a second, ten times the service was 0.74 of them.
    table.row(
        options,
        "etcd, 8 on one lock / raw pairs of one client",
        Goal::AtLeast(0.74),
        || raw(&host, 1, time),
        || ours::contended(&url, 8, time),
    )?;
    table.row(
        options,
        "etcd, 8 on one lock / etcd's own lock service",
        Goal::AtLeast(10.0),
        || lock_service(&host, 8, time),
        || ours::contended(&url, 8, time),
    )?;
    ours::readers(options, table, "etcd", &url)
}

/// As etcd's own library takes a free lock and gives it back: put if absent, attached to a lease, with a look
/// at who is first; then a delete.
fn raw(host: &str, tasks: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let client = Client::connect(host).await?;
        let lease = client.lease().await?;
        let workers = (0..tasks)
            .map(|number| -> Work {
                let client = client.clone();
                Box::new(move |laps| {
                    Box::pin(async move {
                        let key = format!("raw:{number}/{lease:x}").into_bytes();
                        while laps.go_on() {
                            let _: Ignored = client.call(TXN, take(&key, lease)).await?;
                            let delete = Delete { key: key.clone() };
                            let _: Ignored = client.call(DELETE, delete).await?;
                            laps.lap();
                        }
                        Ok(())
                    })
                })
            })
            .collect();
        measure::tasks(time, workers).await
    })
}

/// The service that a program without a library of its own uses.
fn lock_service(host: &str, clients: usize, time: Duration) -> Result<Rate> {
    measure::runtime()?.block_on(async {
        let mut workers: Vec<Work> = vec![];
        for _ in 0..clients {
            let client = Client::connect(host).await?;
            let lease = client.lease().await?;
            workers.push(Box::new(move |laps| {
                Box::pin(async move {
                    while laps.go_on() {
                        let ask = Lock { name: b"service".to_vec(), lease };
                        let locked: Locked = client.call(LOCK, ask).await?;
                        let _: Ignored = client.call(UNLOCK, Unlock { key: locked.key }).await?;
                        laps.lap();
                    }
                    Ok(())
                })
            }));
        }
        measure::tasks(time, workers).await
    })
}

const TXN: &str = "/etcdserverpb.KV/Txn";
const DELETE: &str = "/etcdserverpb.KV/DeleteRange";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const LOCK: &str = "/v3lockpb.Lock/Lock";
const UNLOCK: &str = "/v3lockpb.Lock/Unlock";

#[derive(Clone)]
struct Client(Channel);

impl Client {
    async fn connect(host: &str) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{host}"))?.tcp_nodelay(true);
        Ok(Self(endpoint.connect().await?))
    }

    async fn lease(&self) -> Result<i64> {
        let granted: Granted = self.call(GRANT, Grant { ttl: 600 }).await?;
        Ok(granted.id)
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let request = tonic::Request::new(request);
        let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
        Ok(answer.context(path)?.into_inner())
    }
}

fn take(key: &[u8], lease: i64) -> Txn {
    let name = key.split(|byte| *byte == b'/').next().unwrap_or(key);
    let first = Range {
        key: [name, b"/"].concat(),
        end: [name, b"0"].concat(),
        limit: 1,
        ascending: 1,
        by_creation: 2,
    };
    Txn {
        compare: vec![Absent { creation: 1, key: key.to_vec(), revision: Some(0) }],
        then: vec![
            Op { put: Some(Put { key: key.to_vec(), lease }), range: None },
            Op { put: None, range: Some(first) },
        ],
    }
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Absent>,
    #[prost(message, repeated, tag = "2")]
    then: Vec<Op>,
}

#[derive(Clone, PartialEq, Message)]
struct Absent {
    #[prost(int32, tag = "2")]
    creation: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Op {
    #[prost(message, optional, tag = "1")]
    range: Option<Range>,
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
struct Range {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
    #[prost(int32, tag = "5")]
    ascending: i32,
    #[prost(int32, tag = "6")]
    by_creation: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Ignored {}
