//! Plays the sequence of the notes with real servers and writes down what happened, for
//! `cargo xtask pictures` to draw: client 1 locks A, B and C; C restarts and has forgotten; client 2 asks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "redlock/cluster.rs"]
#[allow(dead_code, reason = "the stories use more of it")]
mod cluster;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::{Client, Cluster, Ways, overlaps};
use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_redis::redlock::standing::Guards;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};

const TTL: Duration = Duration::from_secs(3);
const RULE: &str = "max_ttl=3s";

/// What happened, and which address is whose way to which node.
#[derive(Clone, Default)]
struct Tape {
    events: Arc<Mutex<Vec<Value>>>,
    ways: Arc<Mutex<HashMap<String, (usize, usize)>>>,
}

impl Tape {
    fn knows(&self, client: usize, ways: &Ways) {
        for (node, way) in ways.0.iter().enumerate() {
            let address = format!("127.0.0.1:{}", way.port());
            self.ways.lock().unwrap().insert(address, (client, node));
        }
    }

    fn write(&self, mut event: Value) {
        event["at_ns"] = json!(SystemClock.now().as_nanos());
        self.events.lock().unwrap().push(event);
    }
}

impl<S: tracing::Subscriber> Layer<S> for Tape {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let Some(address) = fields.0.get("node").and_then(Value::as_str) else { return };
        let Some((client, node)) = self.ways.lock().unwrap().get(address).copied() else { return };
        fields.0.insert("client".into(), json!(client));
        fields.0.insert("node".into(), json!(node));
        self.write(Value::Object(fields.0));
    }
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

/// One play; returns whether two trusted the lock at once.
async fn play(tape: &Tape, guards: Guards) -> bool {
    let mut cluster = Cluster::forgetful();
    let (ways, others) = (cluster.ways(), cluster.ways());
    tape.knows(1, &ways);
    tape.knows(2, &others);
    // All that is meant to count counts.
    tokio::time::sleep(TTL + Duration::from_millis(1_500)).await;
    let first = Client::open("client 1", &ways.url(RULE), Guards::UP, TTL).await;
    ways.0[3].partition();
    ways.0[4].partition();
    let (_attempt, guard) = first.takes().await.unwrap().expect("A, B and C");
    tape.write(
        json!({"message": "trusts", "client": 1, "until_ns": guard.trusted_until().as_nanos()}),
    );
    ways.0[2].partition();
    cluster.nodes[2].restart().unwrap();
    tape.write(json!({"message": "restarts", "node": 2}));
    let second = Client::open("client 2", &others.url(RULE), guards, TTL).await;
    let got = second.takes().await.unwrap();
    assert!(guard.is_trusted(), "or it shows nothing");
    if let Some((_, guard)) = &got {
        let until_ns = guard.trusted_until().as_nanos();
        tape.write(json!({"message": "trusts", "client": 2, "until_ns": until_ns}));
    }
    overlaps(&[&first, &second]) > 0
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask pictures runs it"]
async fn record() {
    let folder = PathBuf::from(std::env::var_os("LOCKSTEP_PICTURES").expect("where to write"));
    let no_delay = Guards { delayed_restart: false, ..Guards::UP };
    let tape = Tape::default();
    let layers = tracing_subscriber::registry().with(tape.clone().with_filter(LevelFilter::TRACE));
    tracing::subscriber::set_global_default(layers).unwrap();
    for (name, guards, two) in [("with-the-delay", Guards::UP, false), ("without", no_delay, true)]
    {
        tape.events.lock().unwrap().clear();
        assert_eq!(play(&tape, guards).await, two, "{name}");
        let events = std::mem::take(&mut *tape.events.lock().unwrap());
        let text = serde_json::to_string_pretty(&events).unwrap();
        std::fs::write(folder.join(format!("{name}.json")), text).unwrap();
    }
}
