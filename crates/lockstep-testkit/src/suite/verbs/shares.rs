//! Locks that several hold together: readers, and permits.

use anyhow::Result;
use lockstep_core::{ClaimId, Key, Token};
use lockstep_lock::store::{Answer, Claim, Query, Released, Renewal, WHOLE};
use lockstep_lock::{Share, Signal};

use crate::suite::case::cases;
use crate::suite::client::{Client, claim};
use crate::suite::env::{Env, LONG, SHORT, eventually};

cases! { Verbs:
    readers_hold_together_and_a_writer_alone backs Shared Exclusive;
    readers_do_not_pass_a_writer_that_waits backs Shared Fair;
    all_readers_up_to_the_next_writer_are_granted_together backs Shared Fair;
    a_writer_that_gives_up_lets_the_readers_behind_it_in backs Shared Fair;
    a_writer_that_dies_in_the_queue_lets_the_readers_behind_it_in backs Shared Leases;
    a_downgrade_lets_the_readers_in_that_wait backs Shared;
    readers_tokens_lie_between_those_of_writers backs Shared Fencing;
    permits_are_counted backs Shared;
    who_wants_many_permits_is_not_passed_by_who_wants_few backs Shared Fair;
    a_release_of_many_permits_serves_all_that_fit backs Shared Fair;
    another_total_is_refused_and_changes_nothing backs Shared Errors;
    each_of_several_holders_has_a_lease_of_its_own backs Shared Leases;
    each_of_several_holders_gives_back_its_own backs Shared;
    a_broken_lock_is_broken_for_all_who_share_it backs Shared Break;
    a_lock_broken_at_once_tells_all_who_shared_it backs Shared Break;
    what_an_owner_waits_for_can_be_seen backs Deadlocks Inspect;
}

fn reader(key: &Key) -> Claim {
    Claim { share: Share::Read, ..claim(key, LONG) }
}

fn writer(key: &Key) -> Claim {
    claim(key, LONG)
}

fn permits(key: &Key, count: u32, of: u32) -> Claim {
    Claim { share: Share::Permits { count, of }, ..claim(key, LONG) }
}

fn hasty(claim: &Claim) -> Claim {
    Claim { id: ClaimId::new(), wait: false, ..claim.clone() }
}

/// Who holds the lock, in the order of their grants.
async fn holders(client: &Client, key: &Key) -> Result<Vec<(ClaimId, Share)>> {
    let holders = client.view(key).await?.map(|view| view.holders).unwrap_or_default();
    Ok(holders.into_iter().map(|holder| (holder.claim, holder.share)).collect())
}

fn all_of<const N: usize>(claims: [&Claim; N]) -> Vec<(ClaimId, Share)> {
    claims.map(|claim| (claim.id, claim.share)).into()
}

async fn readers_hold_together_and_a_writer_alone(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("together"));
    let (a, b, c) = (reader(&key), reader(&key), reader(&key));
    one.granted(&a).await?;
    other.granted(&b).await?;
    one.granted(&c).await?;
    assert_eq!(holders(&other, &key).await?, all_of([&a, &b, &c]));
    assert_eq!(other.ask(&hasty(&writer(&key))).await?, Answer::Busy);
    for reader in [&b, &a, &c] {
        assert_eq!(one.renew(reader).await?, Renewal::Renewed);
        assert_eq!(one.release(reader).await?, Released::Done);
        assert_eq!(one.release(reader).await?, Released::NotHeld);
    }
    let alone = writer(&key);
    other.granted(&alone).await?;
    assert_eq!(one.ask(&hasty(&reader(&key))).await?, Answer::Busy);
    assert_eq!(one.ask(&hasty(&writer(&key))).await?, Answer::Busy);
    assert_eq!(holders(&one, &key).await?, all_of([&alone]));
    Ok(())
}

async fn readers_do_not_pass_a_writer_that_waits(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("order"));
    for early in [vec![reader(&key)], vec![reader(&key), reader(&key)]] {
        for reader in &early {
            one.granted(reader).await?;
        }
        let (waits, late) = (writer(&key), reader(&key));
        assert_eq!(other.queued(&waits).await?.ahead, 0);
        assert_eq!(one.ask(&hasty(&late)).await?, Answer::Busy, "not even without waiting");
        assert_eq!(one.queued(&late).await?.ahead, 1);
        for reader in &early {
            one.release(reader).await?;
        }
        assert_eq!(holders(&one, &key).await?, all_of([&waits]));
        other.release(&waits).await?;
        assert_eq!(holders(&one, &key).await?, all_of([&late]));
        one.release(&late).await?;
    }
    Ok(())
}

async fn all_readers_up_to_the_next_writer_are_granted_together(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("batch"));
    let (first, second) = (writer(&key), writer(&key));
    let (a, b, c) = (reader(&key), reader(&key), reader(&key));
    one.granted(&first).await?;
    for waiter in [&a, &b, &second, &c] {
        other.queued(waiter).await?;
    }
    one.release(&first).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&a, &b]));
    for waiter in [&a, &b] {
        if env.facts.push {
            eventually("both readers are told", || async {
                Ok((!other.heard_of(waiter).is_empty()).then_some(()))
            })
            .await?;
        }
        other.granted(waiter).await?;
    }
    assert_eq!(other.queued(&second).await?.ahead, 0);
    assert_eq!(other.queued(&c).await?.ahead, 1);
    other.release(&a).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&b]));
    other.release(&b).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&second]));
    other.release(&second).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&c]));
    assert!(other.heard_of(&c).len() <= 1, "nobody is told twice");
    Ok(())
}

async fn a_writer_that_gives_up_lets_the_readers_behind_it_in(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("gives up"));
    let (early, gives_up, late) = (reader(&key), writer(&key), reader(&key));
    one.granted(&early).await?;
    one.queued(&gives_up).await?;
    other.queued(&late).await?;
    assert_eq!(one.release(&gives_up).await?, Released::Done);
    assert_eq!(holders(&one, &key).await?, all_of([&early, &late]));
    other.granted(&late).await?;
    Ok(())
}

async fn a_writer_that_dies_in_the_queue_lets_the_readers_behind_it_in(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("dies"));
    let ttl = SHORT.max(env.facts.ttl_min);
    for early in [vec![reader(&key)], vec![reader(&key), reader(&key)]] {
        for reader in &early {
            client.granted(reader).await?;
        }
        let (dies, late) = (Claim { ttl, ..writer(&key) }, reader(&key));
        client.queued(&dies).await?;
        client.granted_in_the_end(&late).await?;
        let mut expected: Vec<_> = early.iter().map(|claim| (claim.id, claim.share)).collect();
        expected.push((late.id, late.share));
        assert_eq!(holders(&client, &key).await?, expected);
        for reader in early.iter().chain([&late]) {
            client.release(reader).await?;
        }
    }
    Ok(())
}

async fn a_downgrade_lets_the_readers_in_that_wait(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("downgrade"));
    let (mut first, second) = (writer(&key), writer(&key));
    let (a, b, c) = (reader(&key), reader(&key), reader(&key));
    let token = one.granted(&first).await?;
    for waiter in [&a, &b, &second, &c] {
        other.queued(waiter).await?;
    }
    assert_eq!(one.downgrade(&second).await?, Released::NotHeld, "it only waits");
    assert_eq!(one.downgrade(&first).await?, Released::Done);
    first.share = Share::Read;
    assert_eq!(holders(&other, &key).await?, all_of([&first, &a, &b]));
    assert_eq!(one.downgrade(&first).await?, Released::Done, "it may be asked for twice");
    assert_eq!(one.granted(&first).await?, token, "with the same token");
    assert_eq!(one.renew(&first).await?, Renewal::Renewed);
    other.granted(&a).await?;
    other.granted(&b).await?;
    for reader in [&a, &first, &b] {
        assert_eq!(one.release(reader).await?, Released::Done);
    }
    assert_eq!(holders(&other, &key).await?, all_of([&second]));
    other.release(&second).await?;
    // Alone, and with nobody waiting.
    let mut last = writer(&key);
    other.release(&c).await?;
    one.granted(&last).await?;
    assert_eq!(one.downgrade(&last).await?, Released::Done);
    last.share = Share::Read;
    assert_eq!(holders(&other, &key).await?, all_of([&last]));
    other.granted(&reader(&key)).await?;
    Ok(())
}

async fn readers_tokens_lie_between_those_of_writers(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("tokens"));
    let mut last: Option<Token> = None;
    for round in 0..3 {
        let (a, b, writer) = (reader(&key), reader(&key), writer(&key));
        let token = one.granted(&a).await?;
        assert!(token > last, "round {round}");
        // One in common or one each: what a fence needs is that no writer's lies between them.
        let second = other.granted(&b).await?;
        assert!(second >= token, "round {round}");
        assert_eq!(one.granted(&a).await?, token, "asking again changes nothing");
        assert_eq!(other.granted(&b).await?, second, "asking again changes nothing");
        one.queued(&writer).await?;
        one.release(&a).await?;
        other.release(&b).await?;
        last = one.granted(&writer).await?;
        assert!(last > second, "a writer comes after the readers before it");
        one.release(&writer).await?;
    }
    Ok(())
}

async fn permits_are_counted(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("counted"));
    let (three, two, one_more) = (permits(&key, 3, 5), permits(&key, 2, 5), permits(&key, 1, 5));
    let first = one.granted(&three).await?;
    let second = other.granted(&two).await?;
    assert_ne!(first, second, "permits are told apart");
    assert_eq!(other.ask(&hasty(&one_more)).await?, Answer::Busy);
    assert_eq!(one.queued(&one_more).await?.ahead, 0);
    other.release(&two).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&three, &one_more]));
    one.granted(&one_more).await?;
    let last = permits(&key, 1, 5);
    other.granted(&last).await?;
    for claim in [&three, &one_more, &last] {
        assert_eq!(one.release(claim).await?, Released::Done);
    }
    one.granted(&permits(&key, 5, 5)).await?;
    Ok(())
}

async fn who_wants_many_permits_is_not_passed_by_who_wants_few(env: Env) -> Result<()> {
    let (client, key) = (env.client().await?, env.key("many"));
    let (has, many, few) = (permits(&key, 2, 3), permits(&key, 3, 3), permits(&key, 1, 3));
    client.granted(&has).await?;
    client.queued(&many).await?;
    assert_eq!(client.ask(&hasty(&few)).await?, Answer::Busy);
    assert_eq!(client.queued(&few).await?.ahead, 1);
    client.release(&has).await?;
    assert_eq!(holders(&client, &key).await?, all_of([&many]));
    client.release(&many).await?;
    assert_eq!(holders(&client, &key).await?, all_of([&few]));
    Ok(())
}

async fn a_release_of_many_permits_serves_all_that_fit(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("serves"));
    let (all, a, b) = (permits(&key, 4, 4), permits(&key, 1, 4), permits(&key, 2, 4));
    let (c, d) = (permits(&key, 2, 4), permits(&key, 1, 4));
    one.granted(&all).await?;
    for waiter in [&a, &b, &c, &d] {
        other.queued(waiter).await?;
    }
    one.release(&all).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&a, &b]), "and not the last before the third");
    other.release(&a).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&b, &c]));
    other.release(&b).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&c, &d]));
    Ok(())
}

async fn another_total_is_refused_and_changes_nothing(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("total"));
    for five in [vec![permits(&key, 2, 5)], vec![permits(&key, 1, 5), permits(&key, 1, 5)]] {
        for claim in &five {
            one.granted(claim).await?;
        }
        for differs in [permits(&key, 2, 7), writer(&key), reader(&key)] {
            assert_eq!(other.ask(&differs).await?, Answer::Differs { of: 5 });
            assert_eq!(other.ask(&hasty(&differs)).await?, Answer::Differs { of: 5 });
            assert_eq!(other.release(&differs).await?, Released::NotHeld);
        }
        let view = one.view(&key).await?.expect("it is held");
        assert_eq!((view.holders.len(), view.waiting), (five.len(), 0));
        for claim in &five {
            one.release(claim).await?;
        }
        let seven = permits(&key, 2, 7);
        other.granted(&seven).await?;
        other.release(&seven).await?;
    }
    let alone = writer(&key);
    one.granted(&alone).await?;
    assert_eq!(other.ask(&permits(&key, 1, 5)).await?, Answer::Differs { of: WHOLE });
    Ok(())
}

async fn each_of_several_holders_has_a_lease_of_its_own(env: Env) -> Result<()> {
    let (one, other) = (env.client().await?, env.client().await?);
    let ttl = SHORT.max(env.facts.ttl_min);
    for (name, dies_first) in [("first dies", true), ("second dies", false)] {
        let key = env.key(name);
        let (dies, lives) = (Claim { ttl, ..reader(&key) }, reader(&key));
        let both = if dies_first { [&dies, &lives] } else { [&lives, &dies] };
        for claim in both {
            one.granted(claim).await?;
        }
        let waits = writer(&key);
        eventually("its lease ends", || async {
            Ok((one.renew(&lives).await? == Renewal::Renewed
                && holders(&other, &key).await?.len() == 1)
                .then_some(()))
        })
        .await?;
        assert_eq!(one.renew(&dies).await?, Renewal::Lost);
        assert_eq!(one.release(&dies).await?, Released::NotHeld);
        assert_eq!(one.renew(&lives).await?, Renewal::Renewed);
        other.queued(&waits).await?;
        assert_eq!(holders(&one, &key).await?, all_of([&lives]));
        one.release(&lives).await?;
        other.granted(&waits).await?;
    }
    // What the dead held is there for others.
    let key = env.key("permits come back");
    let (dies, lives, waits) =
        (Claim { ttl, ..permits(&key, 2, 3) }, permits(&key, 1, 3), permits(&key, 2, 3));
    one.granted(&dies).await?;
    one.granted(&lives).await?;
    other.granted_in_the_end(&waits).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&lives, &waits]));
    Ok(())
}

async fn each_of_several_holders_gives_back_its_own(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("own"));
    let (a, b, stranger) = (reader(&key), reader(&key), reader(&key));
    one.granted(&a).await?;
    other.granted(&b).await?;
    assert_eq!(other.release(&stranger).await?, Released::NotHeld);
    assert_eq!(other.renew(&stranger).await?, Renewal::Lost);
    assert_eq!(other.downgrade(&stranger).await?, Released::NotHeld);
    assert_eq!(holders(&one, &key).await?, all_of([&a, &b]));
    assert_eq!(one.release(&a).await?, Released::Done);
    assert_eq!(one.renew(&a).await?, Renewal::Lost, "given back is given back");
    assert_eq!(one.renew(&b).await?, Renewal::Renewed);
    let holds = [a.hold(), b.hold()];
    assert_eq!(one.renew_all(&holds).await?, [Renewal::Lost, Renewal::Renewed]);
    let again = Claim { id: ClaimId::new(), ..a };
    one.granted(&again).await?;
    assert_eq!(holders(&one, &key).await?, all_of([&b, &again]));
    Ok(())
}

async fn a_broken_lock_is_broken_for_all_who_share_it(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("broken"));
    let (a, b) = (reader(&key), reader(&key));
    one.granted(&a).await?;
    other.granted(&b).await?;
    assert_eq!(one.break_lock(&key, "maintenance", false).await?, Released::Done);
    let reason = "maintenance".to_owned();
    for claim in [&a, &b] {
        assert_eq!(one.renew(claim).await?, Renewal::Broken { reason: reason.clone() });
        assert_eq!(one.ask(claim).await?, Answer::Broken { reason: reason.clone() });
    }
    let view = other.view(&key).await?.expect("its leases have not ended");
    assert!(view.holders.iter().all(|holder| holder.broken.as_ref() == Some(&reason)), "{view:?}");
    assert_eq!(other.ask(&hasty(&writer(&key))).await?, Answer::Busy);
    for claim in [&a, &b] {
        assert_eq!(one.release(claim).await?, Released::Done);
    }
    other.granted(&writer(&key)).await?;
    Ok(())
}

async fn a_lock_broken_at_once_tells_all_who_shared_it(env: Env) -> Result<()> {
    let (one, other, key) = (env.client().await?, env.client().await?, env.key("at once"));
    let (a, b, next) = (reader(&key), reader(&key), writer(&key));
    one.granted(&a).await?;
    one.granted(&b).await?;
    other.queued(&next).await?;
    assert_eq!(other.break_lock(&key, "moved", true).await?, Released::Done);
    assert_eq!(holders(&other, &key).await?, all_of([&next]));
    for claim in [&a, &b] {
        assert_eq!(one.renew(claim).await?, Renewal::Lost);
        if env.facts.push && env.subject.tells_of_breaks {
            let lost = Signal::Lost { claim: claim.id, reason: "moved".to_owned() };
            eventually("who held it is told", || async {
                Ok(one.heard_of(claim).contains(&lost).then_some(()))
            })
            .await?;
        }
    }
    Ok(())
}

async fn what_an_owner_waits_for_can_be_seen(env: Env) -> Result<()> {
    let (one, other) = (env.client().await?, env.client().await?);
    let (x, y) = (env.key("x"), env.key("y"));
    let (held_x, held_y) = (writer(&x), writer(&y));
    one.granted(&held_x).await?;
    one.granted(&held_y).await?;
    let waits_x = writer(&x);
    let waits_y = Claim { owner: waits_x.owner, ..reader(&y) };
    other.queued(&writer(&y)).await?;
    other.queued(&waits_x).await?;
    other.queued(&waits_y).await?;
    let seen = one.look(&Query::WaitedForBy(waits_x.owner)).await?;
    let names: Vec<_> = seen.locks.iter().map(|lock| lock.key.clone()).collect();
    assert_eq!(names, [x.clone(), y.clone()]);
    assert_eq!(seen.locks[0].holder().map(|holder| holder.owner), Some(held_x.owner));
    assert_eq!(seen.locks[1].waiters.len(), 2, "with all who wait");
    assert_eq!(seen.locks[1].waiters[1].owner, waits_x.owner);
    assert_eq!(seen.locks[1].waiters[1].share, Share::Read);
    other.release(&waits_x).await?;
    one.release(&held_y).await?;
    let seen = one.look(&Query::WaitedForBy(waits_x.owner)).await?;
    assert_eq!(seen.locks.len(), 1, "{seen:?}");
    assert_eq!(one.look(&Query::WaitedForBy(held_x.owner)).await?.locks, []);
    Ok(())
}
