//! The functions in the database against the reference; see [`lockstep_testkit::reference`].

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use lockstep_sql::postgres::Postgres;
use lockstep_testkit::reference::{Comparison, Says, Server};
use tokio_postgres::Client;

use crate::support::{Place, let_time_pass};

const SAYS: Says = Says { breaks: true, repeats: false, counts_dead: false };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_do_what_the_reference_does() {
    let runs = (0..4).map(|seed| {
        tokio::spawn(async move {
            let place = Place::new();
            let store = Postgres::from_url(&place.url("")).unwrap();
            let rows = Rows { admin: place.admin().await, place };
            Comparison::new(seed, &store, rows, SAYS).await.run(500).await;
        })
    });
    for run in join_all(runs.collect::<Vec<_>>()).await {
        run.unwrap();
    }
}

/// What the store has written.
struct Rows {
    place: Place,
    admin: Client,
}

impl Server for Rows {
    fn let_time_pass(&mut self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(let_time_pass(&self.admin, &self.place, by))
    }
}
