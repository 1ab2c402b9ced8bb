//! The procedures in the database against the reference; see [`lockstep_testkit::reference`].

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use lockstep_sql::mysql::MySql;
use lockstep_testkit::reference::{Comparison, Says, Server};
use mysql_async::Conn;

use crate::support::{Place, let_time_pass};

/// Who is broken at once hears of it when it renews; and the listener looks at what is waited for, so
/// that it may see a grant which an answer is about to tell.
const SAYS: Says = Says { breaks: false, repeats: true, counts_dead: false };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_procedures_do_what_the_reference_does() {
    let runs = (0..4).map(|seed| {
        tokio::spawn(async move {
            let place = Place::new();
            let store = MySql::from_url(&place.url("")).unwrap();
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
    admin: Conn,
}

impl Server for Rows {
    fn let_time_pass(&mut self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(let_time_pass(&mut self.admin, &self.place, by))
    }
}
