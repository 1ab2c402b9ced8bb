//! What a trace gets to see. A subscriber is for the whole process, so this is a test of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstep_lock::Locks;
use lockstep_lock::memory::Memory;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Subscriber, subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

const PATIENCE: Duration = Duration::from_secs(30);

type Fields = BTreeMap<&'static str, String>;

/// The spans that have ended, with everything that was recorded in them.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Vec<(&'static str, Fields)>>>);

struct Noted<'a>(&'a mut Fields);

impl Visit for Noted<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ended {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Noted(&mut fields));
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(&mut Noted(span.extensions_mut().get_mut::<Fields>().unwrap()));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let fields = span.extensions_mut().remove::<Fields>().unwrap();
        self.0.lock().unwrap().push((span.name(), fields));
    }
}

impl Ended {
    /// The fields of all spans of this name, when there is one.
    async fn named(&self, name: &str) -> Vec<Fields> {
        let seen = async {
            loop {
                let ended = self.0.lock().unwrap().clone();
                let named: Vec<_> = ended.into_iter().filter(|(n, _)| *n == name).collect();
                if !named.is_empty() {
                    return named.into_iter().map(|(_, fields)| fields).collect();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("no span {name}"))
    }
}

#[tokio::test]
async fn a_lock_can_be_followed_from_the_wait_to_the_release() {
    let ended = Ended::default();
    subscriber::set_global_default(Registry::default().with(ended.clone())).unwrap();
    let locks = Locks::open(Memory::new()).await.unwrap();

    let guard = locks.lock("job").ttl(Duration::from_secs(3)).await.unwrap();
    let token = guard.token().unwrap().to_string();
    let asked = ended.named("lock").await;
    assert_eq!(asked.len(), 1);
    assert_eq!((&asked[0]["key"], &asked[0]["token"]), (&"job".to_owned(), &token));
    let renewed = ended.named("renew").await;
    assert_eq!(renewed[0]["holds"], "1");
    guard.release().await.unwrap();
    let [held, released] = [ended.named("hold").await, ended.named("release").await];
    for fields in [&held[0], &released[0]] {
        assert_eq!((&fields["key"], &fields["claim"]), (&"job".to_owned(), &asked[0]["claim"]));
    }
    assert_eq!(held[0]["token"], token);

    // Also when it is given back in the background.
    drop(locks.lock("dropped").await.unwrap());
    let back = async {
        while !ended.named("release").await.iter().any(|fields| fields["key"] == "dropped") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
}
