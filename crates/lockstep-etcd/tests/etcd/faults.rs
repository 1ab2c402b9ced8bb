//! Faults that people cause: a typed error or a prompt loss, no hang, nothing deleted that is not ours.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_core::{ClaimId, Effect, ErrorKind, Key, Label, Owner, StoreError};
use lockstep_lock::store::{Answer, Claim, Connect, Release, Released, Renewal};
use lockstep_lock::{Inbox, LockError, LostCause, Share};

use super::{eventually, keys, locks, server, soon};

fn store_error(error: LockError) -> StoreError {
    match error {
        LockError::Store(error) => error,
        other => panic!("a store's error: {other:?}"),
    }
}

fn claim(name: &str) -> Result<Claim> {
    Ok(Claim {
        id: ClaimId::new(),
        key: Key::new(name)?,
        owner: Owner::new(),
        label: Label::default(),
        share: Share::Exclusive,
        ttl: Duration::from_secs(600),
        wait: true,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_and_a_granted_one_is_enough() -> Result<()> {
    let server = server();
    let ask = |words: &str| server.ask(&words.split(' ').collect::<Vec<_>>());
    ask("user add root:r")?;
    ask("user grant-role root root")?;
    ask("user add app:p%40ss")?;
    ask("role add locks")?;
    ask("role grant-permission locks --prefix=true readwrite app/")?;
    ask("user grant-role app locks")?;
    ask("auth enable")?;
    let host = server.address(0);
    let locks_of = async |login: &str| locks(&format!("etcd://{login}{host}")).await;

    let app = locks_of("app:p%2540ss@").await?;
    let guard = app.lock("app/mine").await?;
    assert!(app.try_lock("app/mine").await?.is_none());
    let waits = tokio::spawn(app.lock("app/mine").into_future());
    eventually("it waits", async || {
        app.inspect("app/mine").await.unwrap().is_some_and(|view| view.waiting == 1)
    })
    .await;
    guard.release().await?;
    soon("watches work with a login", waits).await??.release().await?;

    let denied = store_error(app.lock("other/theirs").await.expect_err("no right"));
    assert_eq!((denied.kind(), denied.effect()), (ErrorKind::Denied, Effect::None), "{denied}");
    assert!(denied.to_string().contains("right"), "{denied}");

    let wrong = locks_of("app:wrong@").await.err().context("a wrong password")?;
    let wrong = store_error(wrong.downcast()?);
    assert_eq!(wrong.kind(), ErrorKind::Denied, "{wrong}");
    assert!(!wrong.to_string().contains("wrong@"), "{wrong}");
    let nobody = locks_of("").await?.lock("app/mine").await.expect_err("no user");
    assert_eq!(store_error(nobody).kind(), ErrorKind::Denied);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_too_long_is_refused_and_the_longest_is_not() -> Result<()> {
    let server = server();
    let locks = locks(&server.url()).await?;
    let long = "n".repeat(lockstep_core::MAX_KEY_BYTES);
    locks.lock(&long).await?.release().await?;
    let refused = locks.lock(format!("{long}n")).await;
    assert!(matches!(refused, Err(LockError::Name(_))), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_key_is_named_and_left_alone() -> Result<()> {
    let server = server();
    let locks = locks(&server.url()).await?;
    server.ask(&["put", "settings/color", "red"])?;
    for wait in [true, false] {
        let asked = match wait {
            true => soon("no hang", locks.lock("settings")).await.map(Some),
            false => locks.try_lock("settings").await,
        };
        let refused = store_error(asked.expect_err("somebody's data are there"));
        assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Foreign, Effect::None));
        assert!(refused.to_string().contains("settings/color"), "{refused}");
        assert_eq!(keys(&server, "settings"), [("settings/color".to_owned(), 0)], "only theirs");
    }
    // Below a longer name it is nobody's business, and in a list it is no lock.
    let guard = locks.lock("set").await?;
    assert_eq!(locks.list("", 10).await?.locks.len(), 1);
    guard.release().await?;
    assert_eq!(server.ask(&["get", "settings/color", "--print-value-only"])?, "red\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_key_is_a_prompt_loss() -> Result<()> {
    let server = server();
    // So long that no renewal is due.
    let locks = locks(&server.url()).await?.with_ttl(Duration::from_secs(600));
    let guard = locks.lock("gone").await?;
    let [(key, _)] = &keys(&server, "gone")[..] else { panic!("one key") };
    server.ask(&["del", key])?;
    let lost = soon("the holder hears of it", guard.lost()).await;
    assert!(matches!(&lost.cause, LostCause::Broken(why) if why.contains("deleted")), "{lost:?}");
    assert!(!guard.is_trusted());
    let next = locks.lock("gone").await?;
    assert!(matches!(guard.release().await, Err(LockError::NotHeld { .. })));
    assert!(next.is_trusted());
    assert_eq!(keys(&server, "gone").len(), 1, "the next one's key is untouched");
    next.release().await?;
    Ok(())
}

/// A release knows the key that it means by the revision of its creation, and not by its name alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_release_does_not_hit_what_came_after() -> Result<()> {
    let server = server();
    let connect: Arc<dyn Connect> = Arc::new(lockstep_etcd::Etcd::from_url(&server.url())?);
    let store = connect.open(Some(Inbox::new())).await?;
    // Several times: the handle may hear of the deletion first, and then knows without asking.
    for n in 0..5 {
        let claim = claim(&format!("late {n}"))?;
        let Answer::Granted { .. } = store.acquire(&claim).await? else { panic!("it is free") };
        let name = &keys(&server, claim.key.as_str())[0].0;
        server.ask(&["del", name])?;
        server.ask(&["put", name, "somebody else's"])?;
        let released = store.release(&Release::Mine(claim.hold())).await?;
        let left = keys(&server, claim.key.as_str()).len();
        assert_eq!((released, left), (Released::NotHeld, 1));
    }
    Ok(())
}

/// A key of ours whose name somebody else uses is made with another name.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_is_left_alone() -> Result<()> {
    let server = server();
    let locks = locks(&server.url()).await?;
    let held = locks.lock("taken").await?;
    let name = &keys(&server, "taken")[0].0;
    held.release().await?;
    let lease = name.rsplit('/').next().unwrap_or_default();
    server.ask(&["put", name, "what somebody left behind", "--lease", lease])?;
    assert!(locks.lock("taken").within(Duration::from_millis(200)).await.is_err());
    assert_eq!(keys(&server, "taken").len(), 1, "it waited behind it, and took nothing away");
    server.ask(&["del", name])?;
    soon("then it is free", locks.lock("taken").into_future()).await?.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_lease_is_a_prompt_loss_and_a_new_place_for_who_waits() -> Result<()> {
    let server = server();
    let (one, other) = (locks(&server.url()).await?, locks(&server.url()).await?);
    let (held, first) = (one.lock("held").await?, other.lock("line").await?);
    let waits = tokio::spawn(one.lock("line").into_future());
    eventually("it waits", async || keys(&server, "line").len() == 2).await;
    let before = keys(&server, "line");
    let [(_, lease)] = keys(&server, "held")[..] else { panic!("one key") };
    server.ask(&["lease", "revoke", &format!("{lease:x}")])?;
    let lost = soon("the holder hears of it", held.lost()).await;
    assert!(matches!(&lost.cause, LostCause::Broken(_) | LostCause::Taken), "{lost:?}");
    // Never the old place: its key went with the lease, and a later one would be behind.
    eventually("who waits has another place", async || {
        let now = keys(&server, "line");
        now.len() == 2 && now != before
    })
    .await;
    assert!(!waits.is_finished() && first.is_trusted());
    first.release().await?;
    let guard = soon("its turn comes", waits).await??;
    assert!(guard.is_trusted());
    guard.release().await?;
    Ok(())
}

/// The waiter's lease is revoked and the holder gives back before anybody has asked again: being first
/// in a line that one is not part of any more is nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_lease_is_gone_is_never_told_that_it_holds() -> Result<()> {
    let server = server();
    for round in 0..5 {
        let (one, other) = (locks(&server.url()).await?, locks(&server.url()).await?);
        let one = one.with_ttl(Duration::from_secs(600));
        let name = format!("line {round}");
        let first = other.lock(&name).await?;
        let waits = tokio::spawn(one.lock(&name).into_future());
        eventually("it waits", async || keys(&server, &name).len() == 2).await;
        let [(_, held), (_, waiting)] = keys(&server, &name)[..] else { panic!("two keys") };
        let mine: Vec<u64> = [held, waiting].into_iter().collect();
        // The waiter's is the longer lease.
        let lease = mine.iter().find(|lease| {
            let told = server.ask(&["lease", "timetolive", &format!("{lease:x}")]);
            told.is_ok_and(|told| told.contains("granted with TTL(900s)"))
        });
        server.ask(&["lease", "revoke", &format!("{:x}", lease.context("the waiter's")?)])?;
        first.release().await?;
        let guard = soon("it asks again and is served", waits).await??;
        let [(_, lease)] = keys(&server, &name)[..] else { panic!("its new key") };
        assert!(!mine.contains(&lease), "a grant names a live lease");
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_ends_trust_in_time_and_hangs_nobody() -> Result<()> {
    let mut server = server();
    let locks = locks(&server.url()).await?;
    let guard = locks.lock("still").await?;
    server.pause(0)?;
    let error = soon("no hang", locks.lock("another")).await.expect_err("nobody answers");
    assert_eq!(store_error(error).kind(), ErrorKind::Unavailable);
    let lost = soon("trust ends", guard.lost()).await;
    assert_eq!(lost.cause, LostCause::Expired);
    server.resume(0)?;
    server.wait_healthy(0)?;
    drop(guard);
    soon("it goes on", locks.lock("still")).await?.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_costs_nobody_a_lock() -> Result<()> {
    let mut server = server();
    let (locks, other) = (
        locks(&server.url()).await?.with_ttl(Duration::from_secs(20)),
        locks(&server.url()).await?.with_ttl(Duration::from_secs(20)),
    );
    let guard = locks.lock("kept").await?;
    let waits = tokio::spawn(other.lock("kept").into_future());
    eventually("it waits", async || keys(&server, "kept").len() == 2).await;
    server.restart(0)?;
    server.wait_healthy(0)?;
    let until = guard.trusted_until();
    eventually("it is renewed again", async || guard.trusted_until() > until).await;
    assert!(guard.is_trusted() && !waits.is_finished());
    guard.release().await?;
    soon("who waits is served", waits).await??.release().await?;
    Ok(())
}

/// Both read the key as it was, and one writes first: an adoption that was given up may come that late.
#[tokio::test(flavor = "multi_thread")]
async fn two_adoptions_at_once_do_not_lose_the_lock() -> Result<()> {
    let server = server();
    let connect: Arc<dyn Connect> = Arc::new(lockstep_etcd::Etcd::from_url(&server.url())?);
    let one = connect.open(Some(Inbox::new())).await?;
    let connect: Arc<dyn Connect> = Arc::new(lockstep_etcd::Etcd::from_url(&server.url())?);
    let other = connect.open(Some(Inbox::new())).await?;
    for n in 0..20 {
        let claim = claim(&format!("adopted {n}"))?;
        let Answer::Granted { .. } = one.acquire(&claim).await? else { panic!("it is free") };
        let holds = [claim.hold()];
        let (first, second) = tokio::join!(other.renew(&holds), other.renew(&holds));
        assert_eq!((first?, second?), (vec![Renewal::Renewed], vec![Renewal::Renewed]));
        assert_eq!(other.release(&Release::Mine(claim.hold())).await?, Released::Done);
    }
    Ok(())
}

/// It is dropped when etcd has given its hold another lease already, one that lives on for other locks.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_adoption_runs_out() -> Result<()> {
    let server = server();
    let ttl = Duration::from_secs(3);
    let (one, other) =
        (locks(&server.url()).await?.with_ttl(ttl), locks(&server.url()).await?.with_ttl(ttl));
    let kept = other.lock("kept").await?;
    let [(_, lease)] = keys(&server, "kept")[..] else { panic!("one key") };
    let leaked = one.lock("timed").await?.leak().expect("the only guard");
    let before = other.clock().now();
    other.adopt(leaked).await?.release().await?;
    let whole = other.clock().now().since(before);
    for round in 0..1_000 {
        let name = format!("adopted {round}");
        let leaked = one.lock(&name).await?.leak().expect("the only guard");
        let until = whole * (round % 50) / 50;
        if let Ok(adopted) = tokio::time::timeout(until, other.adopt(leaked)).await {
            adopted?.release().await?;
        } else if keys(&server, &name).iter().any(|(_, lives_with)| *lives_with == lease) {
            eventually("its time is over", async || keys(&server, &name).is_empty()).await;
            return Ok(kept.release().await?);
        }
    }
    anyhow::bail!("no adoption was dropped between the two");
}
