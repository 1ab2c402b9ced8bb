//! Boots, epochs and tokens.

use lockstep_core::ErrorKind;

use super::*;

fn epoch(path: &Path) -> i64 {
    raw(path).query_row("SELECT epoch FROM lockstep_meta", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_restart_of_the_machine_voids_all_leases_and_raises_tokens() {
    let (_folder, path) = database();
    let store = Sqlite::at(&path).unwrap();
    let before = lane(&store.clone().with_boot_id("one")).await;
    let held = claim("job");
    let token = granted(&*before, &held).await;
    before.acquire(&claim("job")).await.unwrap();

    let after = lane(&store.with_boot_id("two")).await;
    let page = after.inspect(&Query::One(held.key.clone())).await.unwrap();
    assert_eq!(page.locks, []);
    let next = granted(&*after, &claim("job")).await;
    assert_eq!(next >> 32, (token >> 32) + 1);

    // The first lane's boot is over, so a kernel that still uses it is a second one.
    let error = before.acquire(&claim("other")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert_eq!(before.renew(&[held.hold()]).await.unwrap(), [Renewal::Lost]);
}

#[tokio::test]
async fn lanes_of_one_boot_share_its_epoch() {
    let (_folder, path) = database();
    let one = lane(&Sqlite::at(&path).unwrap()).await;
    let held = claim("job");
    let token = granted(&*one, &held).await;
    let two = lane(&Sqlite::at(&path).unwrap()).await;
    assert_eq!(epoch(&path), 1);
    assert_eq!(token >> 32, 1);
    assert_eq!(two.renew(&[held.hold()]).await.unwrap(), [Renewal::Renewed]);
}

/// Somebody raised the epoch and was killed before it was known to be on the disk.
#[tokio::test]
async fn an_epoch_that_may_not_be_durable_is_synchronised_first() {
    let (_folder, path) = database();
    let one = lane(&Sqlite::at(&path).unwrap()).await;
    let held = claim("job");
    granted(&*one, &held).await;
    raw(&path).execute("UPDATE lockstep_meta SET state = 1", []).unwrap();

    let two = lane(&Sqlite::at(&path).unwrap()).await;
    let sql = "SELECT epoch, state, syncs FROM lockstep_meta";
    let mark: (i64, i64, i64) = raw(&path).query_row(sql, [], |row| row.try_into()).unwrap();
    assert_eq!(mark, (1, 2, 2), "the same epoch, settled by a second synchronised commit");
    assert_eq!(two.renew(&[held.hold()]).await.unwrap(), [Renewal::Renewed]);
}

/// They come up with the machine, all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_start_together_raise_the_epoch_once() {
    let (_folder, path) = database();
    lane(&Sqlite::at(&path).unwrap().with_boot_id("one")).await;
    let opens = (0..16).map(|_| {
        let store = Sqlite::at(&path).unwrap().with_boot_id("two");
        tokio::spawn(async move { store.open(None).await.map(drop) })
    });
    for open in opens.collect::<Vec<_>>() {
        open.await.unwrap().unwrap();
    }
    assert_eq!(epoch(&path), 2);
}

#[tokio::test]
async fn a_used_up_counter_raises_the_epoch_and_keeps_the_holders() {
    let (_folder, path) = database();
    let lane = lane(&Sqlite::at(&path).unwrap()).await;
    let (busy, held) = (claim("busy"), claim("held"));
    granted(&*lane, &busy).await;
    granted(&*lane, &held).await;
    release(&*lane, &busy).await;
    let last: u64 = 1 << 32 | 0xFFFF_FFFF;
    let sql = "UPDATE lockstep_lock SET token = ?1 WHERE key = 'busy'";
    raw(&path).execute(sql, [last as i64]).unwrap();

    assert_eq!(granted(&*lane, &claim("busy")).await, 2 << 32 | 1);
    assert_eq!(lane.renew(&[held.hold()]).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(epoch(&path), 2);
}

/// The row of a free lock is kept for its token; a larger epoch is worth as much.
#[tokio::test]
async fn a_file_that_has_grown_large_forgets_free_locks_and_no_token() {
    let (_folder, path) = database();
    let open = lane(&Sqlite::at(&path).unwrap()).await;
    let (held, freed) = (claim("held"), claim("freed"));
    granted(&*open, &held).await;
    let token = granted(&*open, &freed).await;
    release(&*open, &freed).await;
    let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 180000)
                INSERT INTO lockstep_lock (key, token)
                SELECT printf('%0200d', i), 1 << 32 | 1 FROM n";
    raw(&path).execute_batch(fill).unwrap();

    let second = lane(&Sqlite::at(&path).unwrap()).await;
    let rows = "SELECT count(*) FROM lockstep_lock";
    let rows: i64 = raw(&path).query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
    assert_eq!(second.renew(&[held.hold()]).await.unwrap(), [Renewal::Renewed]);
    assert!(granted(&*open, &claim("freed")).await > token);
    let _third = lane(&Sqlite::at(&path).unwrap()).await;
    assert_eq!(epoch(&path), 2, "once is enough");
}
