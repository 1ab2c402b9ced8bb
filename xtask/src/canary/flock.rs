//! The planted bugs, one per promise that would be expensive to lose.

use super::Canary;

const MACHINES: &[&str] = &["--test", "scripts", "--test", "properties"];
const RENEWALS: &[&str] = &["--test", "renewals"];
const MODEL: &[&str] = &["--test", "model"];
const LINE: &[&str] = &["--test", "line"];
const CLOCK: &[&str] = &["--test", "boottime"];
const KEEPER: &[&str] = &["--test", "keeper"];
const LATE_ASKS: &[&str] = &["--test", "wire", "--", "late_ask"];
const REDIS_CONFORMS: &[&str] = &["--test", "redis_suite", "--", "--exact", "conforms"];
const MEMORY: &[&str] = &["--test", "memory"];
const REDIS: &[&str] = &["--test", "redis_suite"];
const REDIS_OWN: &[&str] = &["--test", "it"];
const REDLOCK_QUORUM: &[&str] = &["--lib", "--", "redlock::arithmetic::tests::"];
const REDLOCK_MACHINE: &[&str] = &["--test", "round"];
const REDLOCK: &[&str] = &["--test", "redlock"];
const PLAIN: &[&str] = &["--test", "plain_suite"];
// Of all units only those that are meant: another that fails by chance would catch everything.
const PLAIN_UNITS: &[&str] = &["--lib", "--", "plain::waiters::tests::"];
const REDIS_LINE_UNITS: &[&str] = &["--lib", "--", "line::tests::"];
const REDIS_LINK_UNITS: &[&str] = &["--lib", "--", "link::tests::"];
const SQLITE: &[&str] = &[
    "--test",
    "sql_suite",
    "--",
    "--exact",
    "sqlite_conforms",
    "sqlite_lives_through_the_stories",
];
const SQLITE_OWN: &[&str] = &["--test", "sqlite"];
const POSTGRES: &[&str] = &[
    "--test",
    "sql_suite",
    "--",
    "--exact",
    "postgres_conforms",
    "postgres_lives_through_the_stories",
];
const POSTGRES_OWN: &[&str] = &["--test", "postgres"];
const POSTGRES_HOSTS: &[&str] = &["--test", "postgres", "--", "hosts::"];
const TX: &[&str] = &["--test", "tx"];
const HTTP: &[&str] = &["--test", "http"];
const MARIADB: &[&str] = &[
    "--test",
    "sql_suite",
    "--",
    "--exact",
    "mariadb_conforms",
    "mariadb_lives_through_the_stories",
];
const MARIADB_OWN: &[&str] = &["--test", "mysql"];
const ETCD: &[&str] =
    &["--test", "etcd_suite", "--", "--exact", "conforms", "lives_through_the_stories"];
const ETCD_OWN: &[&str] = &["--test", "etcd"];
const ETCD_THREAD: &[&str] = &["--lib", "--", "worker::tests"];
const ZOOKEEPER_THREE: &[&str] = &["--lib", "--", "tests::ensemble::behind"];
const ZOOKEEPER_DOWNGRADES: &[&str] = &["--lib", "--", "tests::downgrades::"];
const ZOOKEEPER_FAULTS: &[&str] = &["--lib", "--", "tests::faults::"];
const ZOOKEEPER_REPLIES: &[&str] = &["--lib", "--", "tests::replies::"];
const ZOOKEEPER_SESSIONS: &[&str] = &["--lib", "--", "tests::sessions::"];
const COMMAND: &[&str] = &["--test", "lease"];
const EXCLUSION: &[&str] = &["--test", "exclusion"];

const ACQUISITION: &str = "crates/lockstep-lock/src/acquisition.rs";
const QUEUE: &str = "crates/lockstep-lock/src/queue.rs";
const STAKE: &str = "crates/lockstep-lock/src/stake.rs";
const ALL: &str = "crates/lockstep-lock/src/all.rs";
const KEEPER_RS: &str = "crates/lockstep-lock/src/keeper.rs";
const GUARD: &str = "crates/lockstep-lock/src/guard.rs";
const HEAL_LUA: &str = "crates/lockstep-redis/src/scripts/heal.lua";
const KEEP_LUA: &str = "crates/lockstep-redis/src/scripts/keep.lua";
const SHARED_LUA: &str = "crates/lockstep-redis/src/scripts/shared.lua";
const ACQUIRE_LUA: &str = "crates/lockstep-redis/src/scripts/acquire.lua";
const BREAK_LUA: &str = "crates/lockstep-redis/src/scripts/break.lua";
const RENEW_LUA: &str = "crates/lockstep-redis/src/scripts/renew.lua";
const RELEASE_LUA: &str = "crates/lockstep-redis/src/scripts/release.lua";
const REDIS_LINE: &str = "crates/lockstep-redis/src/line.rs";
const REDIS_LINK: &str = "crates/lockstep-redis/src/link.rs";
const REDLOCK_ROUND: &str = "crates/lockstep-redis/src/redlock/round.rs";
const REDLOCK_STANDING: &str = "crates/lockstep-redis/src/redlock/standing.rs";
const PLAIN_SET: &str = "crates/lockstep-redis/src/plain/set.lua";
const PLAIN_EXTEND: &str = "crates/lockstep-redis/src/plain/extend.lua";
const PLAIN_GIVE_BACK: &str = "crates/lockstep-redis/src/plain/give_back.lua";
const PLAIN_BREAK: &str = "crates/lockstep-redis/src/plain/break.lua";
const PLAIN_WAITERS: &str = "crates/lockstep-redis/src/plain/waiters.rs";
const POSTGRES_ACQUIRE: &str = "crates/lockstep-sql/src/postgres/sql/acquire.sql";
const POSTGRES_BESIDE: &str = "crates/lockstep-sql/src/postgres/sql/beside.sql";
const POSTGRES_GIVE_BACK: &str = "crates/lockstep-sql/src/postgres/sql/give_back.sql";
const POSTGRES_RENEW: &str = "crates/lockstep-sql/src/postgres/sql/renew.sql";
const MYSQL_GIVE_BACK: &str = "crates/lockstep-sql/src/mysql/sql/give_back.sql";
const MYSQL_ACQUIRE: &str = "crates/lockstep-sql/src/mysql/sql/acquire.sql";
const MYSQL_RELEASE: &str = "crates/lockstep-sql/src/mysql/sql/release.sql";
const MYSQL_RENEW: &str = "crates/lockstep-sql/src/mysql/sql/renew.sql";

const ZOOKEEPER_STORE: &str = "crates/lockstep-zookeeper/src/store.rs";
const ZOOKEEPER_PARK: &str = "crates/lockstep-zookeeper/src/park.rs";

// A test that does not end proves as little as one that passes.
macro_rules! canaries {
    ($($name:literal: $harm:literal, in $file:expr, $find:literal => $replace:literal, $tests:ident;)+) => {
        pub(super) const CANARIES: &[Canary] = &[$(Canary {
            name: $name,
            harm: $harm,
            file: $file,
            find: $find,
            replace: $replace,
            tests: $tests,
        }),+];
    };
}

canaries! {
    "machine-trusts-old-push": "a grant that passed on long ago makes a second holder",
        in ACQUISITION, "let fresh = place.behind.is_some() && token > place.behind;" => "let fresh = true;",
        MODEL;
    "machine-lease-from-the-answer": "trust outlives the lease by the time the answer took",
        in ACQUISITION, "let lease = Lease::new(asked_at, self.terms.ttl" => "let lease = Lease::new(now, self.terms.ttl",
        MACHINES;
    "machine-forgets-to-ask-again": "a waiter whose push is lost waits for ever",
        in ACQUISITION, "let mut at = place.asked_at + self.terms.ttl / 3;" => "let mut at = Moment::MAX;",
        MODEL;
    "queue-lost-waiter": "a release that nobody hears of: the next in line waits for the ttl",
        in QUEUE, "told.extend(row.heal(now));" => "",
        MEMORY;
    "loss-taken-for-success": "who lost its lock is told that it gave it back",
        in GUARD, "unsure && was_trusted" => "unsure && (was_trusted || unsure)",
        MEMORY;
    "queue-serves-the-dead": "a waiter that died is granted the lock",
        in QUEUE, "let lives = now.moment < next.until;" => "let lives = true;",
        MEMORY;
    "queue-serves-the-last-first": "who came last is served first",
        in QUEUE, "self.queue.push_back(Waiter" => "self.queue.push_front(Waiter",
        MODEL;
    "queue-token-reused": "two holders with one token: a fence cannot tell them apart",
        in QUEUE, "self.token += 1;" => "self.token = 1;",
        MEMORY;
    "queue-renew-resurrects": "a lease that ran out comes back to life beside the next holder's",
        in QUEUE, "holder.filter(|holder| now.moment < holder.until)" => "holder",
        MEMORY;
    "queue-reader-passes-writer": "readers come and go, and the writer waits for ever",
        in QUEUE, "self.queue.is_empty() && self.fits(claim.share)" => "self.fits(claim.share)",
        MEMORY;
    "queue-permits-exceeded": "more permits are out than there are",
        in QUEUE, "used + u64::from(share.weight()) <= u64::from(share.of())" => "used < u64::from(share.of())",
        MEMORY;
    "queue-total-not-checked": "two callers count the same permits differently",
        in QUEUE, "holder.claim.share.of() != claim.share.of()" => "false",
        MEMORY;
    "queue-readers-told-apart": "readers that hold together refuse each other at the fence",
        in QUEUE, "if claim.share != Share::Read || self.holders.is_empty() {" => "if true {",
        MEMORY;
    "circle-never-found": "owners wait for each other for ever",
        in "crates/lockstep-lock/src/deadlock.rs", "if before == self.me {" => "if false {",
        MEMORY;
    "clock-stops-in-sleep": "a machine that wakes up trusts locks that others were granted meanwhile",
        in "crates/lockstep-lock/src/clock.rs", "ClockId::Boottime;" => "ClockId::Monotonic;",
        CLOCK;
    "clock-of-the-wall": "whoever sets the clock ends leases, or lets them live for days",
        in "crates/lockstep-lock/src/clock.rs", "        let time = rustix" => "        if wall_ms() > 0 {\n            return Moment::from_nanos(wall_ms() * 1_000_000);\n        }\n        let time = rustix",
        EXCLUSION;
    "memory-forgets-tokens": "a name that was free for a while begins to count anew",
        in QUEUE, "self.floor = self.floor.max(token);" => "let _ = token;",
        MACHINES;
    "keeper-opens-in-haste": "locks are granted and never renewed where a connection takes its time",
        in KEEPER_RS, "self.op_timeout * OPENING;\n        let open" => "self.op_timeout;\n        let open",
        KEEPER;
    "keeper-waits-out-the-lease": "one renewal that is never answered loses the lock",
        in "crates/lockstep-lock/src/renewals.rs", "const PATIENCE_PART: u32 = 5;" => "const PATIENCE_PART: u32 = 1;",
        RENEWALS;
    "keeper-gives-back-once": "an ask that is slower than what gives it back holds the lock until the ttl",
        in KEEPER_RS, "            if unsure {" => "            if false {",
        LATE_ASKS;
    "keeper-keeps-twins": "of two guards for one leaked lock, the end of one is the end of the other, unknown to it",
        in KEEPER_RS, "let taken = held.trusts.contains_key(&id) || held" => "let taken = held",
        MEMORY;
    "keeper-lends-what-goes-back": "a leaked lock is adopted while it is given back, and ends with that, unknown to its guard",
        in KEEPER_RS, " || held.returning.contains(&id);" => ";",
        MEMORY;
    "keeper-gives-up-the-slow": "a store that is slow to answer costs every lock",
        in KEEPER_RS, "                    verb.await\n" => "                    Err(StoreError::new(shared.store, ErrorKind::Unavailable, Effect::Unknown, \"given up\"))\n",
        MEMORY;
    "renewals-revive-what-ran-out": "a late answer brings a lease back that somebody may have been told is over",
        in "crates/lockstep-lock/src/renewals.rs", "Renewal::Renewed if entry.trusted_until() <= now => self.put_back(entry)," => "",
        RENEWALS;
    "owner-waits-for-its-past": "an owner whose request was dropped is told that it waits for itself",
        in "crates/lockstep-lock/src/deadlock.rs", "!returning.contains(&holder.claim)" => "true",
        REDIS_CONFORMS;
    "keeper-never-woken": "the first hold of an idle handle is not renewed",
        in KEEPER_RS, "if !in_time {" => "if false {",
        MEMORY;
    "all-in-any-order": "requests for several locks wait for each other in a circle",
        in ALL, "for key in keys? {" => "let mut keys: Vec<Key> = keys?.into_iter().collect();\n        if lockstep_core::ClaimId::new().as_u128() % 2 == 0 {\n            keys.reverse();\n        }\n        for key in keys {",
        MEMORY;
    "stake-drop-does-nothing": "a cancelled request keeps its place, a dropped guard its lock",
        in STAKE, "if self.known != Known::Nothing {" => "if false {",
        MEMORY;
    "guard-believes-for-ever": "a paused holder goes on writing",
        in GUARD, "self.stint.inner.clock.now() < self.trust.until()" => "true",
        MEMORY;
    "guard-work-goes-on": "work takes another step after a pause, before anybody has noticed the loss",
        in GUARD, "        if let Err(lost) = check() {\n            return Poll::Ready(Err(lost));\n        }\n" => "",
        MEMORY;
    "guard-renews-after-release": "renewals that outlive the lock",
        in GUARD, "        inner.keeper.returns(id);\n        let what" => "        let what",
        MEMORY;
    "all-trusts-after-one-loss": "of several locks one is gone, and the work goes on",
        in ALL, "self.0.iter().all(Guard::is_trusted)" => "self.0.iter().any(Guard::is_trusted)",
        MEMORY;
    "all-keeps-what-it-has": "a request for several locks fails, and the first ones stay locked",
        in ALL, "held.release().await {" => "Ok::<(), LockError>(std::mem::forget(held)) {",
        MEMORY;
    "redlock-quorum-off-by-one": "two of five are taken for a majority, and so are the other three",
        in "crates/lockstep-redis/src/redlock/arithmetic.rs", "nodes / 2 + 1" => "if nodes > 2 { nodes / 2 } else { nodes / 2 + 1 }",
        REDLOCK_QUORUM;
    "redlock-gives-back-only-what-was-granted": "an ask whose reply was lost locks its node until the ttl",
        in REDLOCK_ROUND, "let everywhere = (0..self.terms.nodes).map(Effect::GiveBack);" => "let votes = self.votes.clone();\n        let everywhere = (0..self.terms.nodes).filter(|node| votes[*node] == Some(Vote::Granted)).map(Effect::GiveBack);",
        REDLOCK_MACHINE;
    "redlock-restart-forgotten": "a node that has forgotten its vote votes again",
        in REDLOCK_STANDING, "if delayed_restart && sent_at < until {" => "if delayed_restart && false {",
        REDLOCK;
    "redlock-clock-jump-forgotten": "nodes whose keys ended early vote again",
        in REDLOCK_STANDING, "if clock_watch && sent_at < until =>" => "if clock_watch && false && sent_at < until =>",
        REDLOCK;
    "redlock-counts-what-it-brings-back": "a renewal counts a node that may have voted for others meanwhile",
        in "crates/lockstep-redis/src/redlock/renew.rs", "tally.gone += 1;" => "tally.extended += 1;",
        REDLOCK;
    "redlock-asks-before-the-last-round-has-ended": "what one round asked for late is given back, and with it what the next was granted",
        in "crates/lockstep-redis/src/redlock/ask.rs", "member.debts().will_owe(&lease.value);" => "member.debts().will_owe(\"nobody\");",
        REDLOCK;
    "redlock-counts-what-is-given-back": "a renewal counts a node that is about to give the hold back",
        in "crates/lockstep-redis/src/redlock/renew.rs", "nodes | 1 << member.index" => "nodes | 0 << member.index",
        REDLOCK;
    "redlock-leaves-open-what-it-gave-up": "a request to give back that comes late takes away what was granted since",
        in "crates/lockstep-redis/src/redlock/earlier.rs", "kill.arg(\"KILL\").arg(\"ID\").arg(id);" => "kill.arg(\"KILL\").arg(\"ID\").arg(id - id);",
        REDLOCK;
    "redlock-counts-who-may-read-what-it-gave-up": "where earlier connections cannot be closed, the vote counts at once",
        in "crates/lockstep-redis/src/redlock/debts.rs", "one_may_come && !member.earlier.are_closed()" => "false && !member.earlier.are_closed()",
        REDLOCK;
    "redis-line-forgets-the-rest": "of a request larger than the socket takes at once, only the beginning arrives",
        in REDIS_LINE, "self.unsent.drain(..written);" => "self.unsent.drain(..);\n            let _ = written;",
        REDIS_LINE_UNITS;
    "redis-line-answers-anybody": "an answer that nobody asked for is taken for the next one's",
        in REDIS_LINE, "None => return unasked()," => "None => {}",
        REDIS_LINE_UNITS;
    "redis-line-breaks-silently": "who waits on a connection that broke waits until its patience ends",
        in REDIS_LINE, "out.waiting.clear();" => "",
        REDIS_LINE_UNITS;
    "redis-link-keeps-the-silent": "a connection that a firewall has forgotten is asked again and again",
        in REDIS_LINK, "if self.since.elapsed() > PATIENCE.mul_f64(0.9) {" => "if false {",
        REDIS_LINK_UNITS;
    "redis-release-without-owner-check": "a late holder deletes its successor's lock",
        in RELEASE_LUA, " and string.find(row, me, 2, true) == 2" => "",
        REDIS;
    "redis-no-ttl": "a crashed holder locks for ever",
        in ACQUIRE_LUA, "'NX', 'PX', ARGV[3])" => "'NX')",
        REDIS;
    "redis-lost-waiter": "a release overlooks who waits",
        in ACQUIRE_LUA, "call('SETRANGE', lock, '0', 'w')" => "",
        REDIS;
    "redis-waiting-ends-the-lease": "who joins the queue cuts the holder's lease short",
        in ACQUIRE_LUA, "'w')\n  outlive()" => "'w')",
        REDIS;
    "redis-breaking-ends-the-lease": "a broken lock passes on before its holder's trust has ended",
        in BREAK_LUA, "    outlive()\n" => "",
        REDIS;
    "redis-release-revives": "who comes too late to give a lock back is told that it held it",
        in RELEASE_LUA, " and call('PTTL', lock) >= tonumber(ARGV[2])" => "",
        REDIS_OWN;
    "redis-hands-over-to-the-dead": "a release passes the lock to a waiter that died",
        in RELEASE_LUA, "asked + ttl * 1000 > now and seconds" => "seconds",
        REDIS_OWN;
    "redis-hands-over-the-clock": "after the clock was set back, a token is smaller than the one before",
        in RELEASE_LUA, " and seconds * 1000000 + micros < now" => "",
        REDIS_OWN;
    "redis-queues-by-the-clock": "after the clock was set back, who comes last is served first",
        in ACQUIRE_LUA, "if place > 0 and call('ZRANGE', queue, '-1', '-1')[1] ~= me then" => "if false then",
        REDIS_OWN;
    "redis-renew-without-owner-check": "somebody else's lease is prolonged, and believed to be ours",
        in RENEW_LUA, "string.sub(row, 2, 33) ~= claim or " => "",
        REDIS;
    "redis-renew-resurrects": "a lease that ran out comes back to life",
        in RENEW_LUA, "redis.call('PTTL', lock) < ttl" => "false",
        REDIS_OWN;
    "redis-token-goes-nowhere": "every holder has the same token",
        in HEAL_LUA, "math.max(token + 1, now)" => "math.max(token, 1)",
        REDIS;
    "redis-reader-passes-a-writer": "readers that come and go keep a writer out for ever",
        in ACQUIRE_LUA, "nobody_waits and of == total and" => "of == total and",
        REDIS;
    "redis-place-given-up-in-silence": "a writer that gives up keeps the readers behind it out",
        in RELEASE_LUA, "end\nheal()\n-- A place" => "end\n-- A place",
        REDIS;
    "redis-dead-sharer-holds-for-ever": "what a crashed reader or worker held never comes back",
        in SHARED_LUA, "'-inf', stamp" => "'-inf', 0",
        REDIS;
    "redis-shared-keys-end-early": "a lock that readers still hold is granted to a writer",
        in KEEP_LUA, "life < ttl * 1.5" => "life < 0",
        REDIS_OWN;
    "redis-readers-have-many-tokens": "a fence takes a reader for a writer that came later",
        in HEAL_LUA, "if alone or wanted ~= 'read' then" => "if true then",
        REDIS_OWN;
    "sqlite-serves-the-dead": "a waiter that died is granted the lock",
        in "crates/lockstep-sql/src/sqlite/sql/waiter_next.sql", "AND until_ns > ?2" => "AND ?2 = ?2",
        SQLITE;
    "sqlite-token-forgets-the-boot": "after a power cut tokens are handed out again",
        in "crates/lockstep-sql/src/sqlite/boot.rs", "sql/boot_void.sql\"))?;\n            mark.epoch + 1" => "sql/boot_void.sql\"))?;\n            mark.epoch",
        SQLITE_OWN;
    "sqlite-reader-passes-writer": "readers come and go, and the writer waits for ever",
        in "crates/lockstep-sql/src/sqlite/row.rs", "(self.holders.is_empty() || !self.is_waited_for(now)?)" => "true",
        SQLITE;
    "sqlite-holder-not-forgotten": "who shared a lock once is counted for ever",
        in "crates/lockstep-sql/src/sqlite/sql/holder_forget.sql", "AND claim = ?2" => "AND claim = ?2 AND 1 = 0",
        SQLITE;
    "postgres-waits-for-the-silent": "a host that is frozen keeps the one that serves from being dialled",
        in "crates/lockstep-sql/src/postgres/hosts.rs", "1.. => head_start," => "1.. => Duration::MAX,",
        POSTGRES_HOSTS;
    "postgres-writer-beside-a-reader": "a writer is let in while a reader's grant is on its way to the disk",
        in POSTGRES_BESIDE, "PERFORM pg_advisory_xact_lock(" => "PERFORM (",
        POSTGRES_OWN;
    "postgres-release-without-owner-check": "a late holder frees its successor's lock",
        in POSTGRES_GIVE_BACK, "l.claim = $2 AND " => "",
        POSTGRES;
    "postgres-lost-waiter": "a release overlooks who waits",
        in POSTGRES_ACQUIRE, "SET tail = l.tail + 1" => "SET tail = l.tail",
        POSTGRES;
    "postgres-renew-resurrects": "a lease that ran out comes back to life",
        in POSTGRES_RENEW, "AND l.broken IS NULL AND l.until_us > {now_us}" => "AND l.broken IS NULL",
        POSTGRES;
    "postgres-reader-passes-writer": "readers come and go, and the writer waits for ever",
        in POSTGRES_ACQUIRE, "IF held.weight < held.total AND held.turn = held.tail THEN" => "IF held.weight < held.total THEN",
        POSTGRES;
    "postgres-writer-gives-up-unheard": "readers wait behind a writer that has left the queue",
        in "crates/lockstep-sql/src/postgres/sql/release.sql", "    ELSIF held.weight < held.total THEN\n        held := {schema}.lockstep_heal_v1(held, now_us, NULL);\n" => "",
        POSTGRES;
    "postgres-verify-locks-nothing": "a lock is taken over in the middle of a verified tx",
        in "crates/lockstep-sql/src/postgres/sql/verify.sql", "f.key = p_row_key FOR SHARE;" => "f.key = p_row_key;",
        POSTGRES_OWN;
    "postgres-fence-is-not-raised": "a holder that was replaced goes on writing",
        in "crates/lockstep-sql/src/postgres/sql/fence.sql", "VALUES ('', p_key, p_token)" => "VALUES ('-', p_key, p_token)",
        POSTGRES_OWN;
    "sqlite-fence-forgets": "a late write lowers the highest token seen",
        in "crates/lockstep-sql/src/tx/sql/sqlite_verify.sql", "max(token, excluded.token)" => "excluded.token",
        TX;
    "mysql-forgets-who-joins-last": "who joins a queue that empties meanwhile waits for ever",
        in MYSQL_ACQUIRE, "AND weight = total AND turn < tail AND" => "AND weight = total AND",
        MARIADB_OWN;
    "mysql-overtaken-for-ever": "who takes a place that a later one was served before waits until the queue is empty",
        in MYSQL_ACQUIRE, " AND turn < v_joined" => "",
        MARIADB_OWN;
    "mysql-believes-what-it-sees": "a server that crashes gives a token that was told to somebody else",
        in "crates/lockstep-sql/src/mysql/rows.rs", "let told = words.next()? == \"1\";" => "let told = words.next().is_some();",
        MARIADB_OWN;
    "mysql-vouches-too-early": "a grant is told before it is on the disk",
        in MYSQL_RELEASE, "        SELECT TRUE AS done" => "        DO GET_LOCK(CONCAT('lockstep-told-', HEX(v_next), '-', HEX(v_token + 1)), 0);\n        SELECT TRUE AS done",
        MARIADB_OWN;
    "mysql-serves-the-dead": "a lock passes to who has left, and all wait for a ttl",
        in MYSQL_RELEASE, "v_lives_until_us > v_now_us AND" => "v_lives_until_us > 0 AND",
        MARIADB;
    "mysql-fence-forgets": "a late write lowers the highest token seen",
        in "crates/lockstep-sql/src/tx/sql/mysql_verify.sql", "GREATEST(token, {token})" => "{token}",
        TX;
    "plain-no-ttl": "a crashed holder locks for ever",
        in PLAIN_SET, "'NX', 'PX', ttl)" => "'NX')",
        PLAIN;
    "plain-takes-what-is-taken": "two holders of one key",
        in PLAIN_SET, "if found == mine then" => "if true then",
        PLAIN;
    "plain-release-without-compare": "a late holder deletes its successor's lock",
        in PLAIN_GIVE_BACK, "if found == ARGV[1] or string.sub(found, 1, #broken) == broken then" => "if true then",
        PLAIN;
    "plain-renew-resurrects": "a lease that ran out comes back to life",
        in PLAIN_EXTEND, "if found == mine then\n    redis.call('PEXPIRE', key, ttl)" => "if found == mine or not found then\n    redis.call('SET', key, mine, 'PX', ttl)",
        PLAIN;
    "plain-break-for-ever": "a broken lock never passes on",
        in PLAIN_BREAK, "'XX', 'KEEPTTL')" => "'XX')",
        PLAIN;
    "plain-deaf": "waiters hear of nothing, and sleep for a third of their ttl",
        in PLAIN_WAITERS, "inbox.deliver(Signal::AskAgain { claim });" => "let _ = (claim, inbox);",
        PLAIN;
    "plain-told-too-early": "what is told while an ask is on its way is lost",
        in PLAIN_WAITERS, "waiter.lane != lane || waiter.asking" => "waiter.lane != lane",
        PLAIN_UNITS;
    "redis-fence-rounds": "tokens that differ by one are taken for the same",
        in "crates/lockstep-redis/src/scripts/fence.lua", "lockstep_seen > lockstep_token then" => "tonumber(lockstep_seen) > tonumber(lockstep_token) then",
        REDIS_OWN;
    "gate-lets-the-next-overtake": "the request of a later holder is served beside that of an earlier one",
        in "crates/lockstep-tower/src/seen.rs", "Ok(Admission::keeping(seen))" => "Ok(Admission::open())",
        HTTP;
    "mysql-release-without-owner-check": "a late holder frees its successor's lock",
        in MYSQL_GIVE_BACK, "claim = ? AND turn" => "(claim = ? OR TRUE) AND turn",
        MARIADB;
    "mysql-takes-what-is-held": "whoever asks gets the lock",
        in "crates/lockstep-sql/src/mysql/sql/ask.sql", "claim = {nobody}" => "claim <> {several}",
        MARIADB;
    "mysql-free-looks-held": "who does not want to wait is told that a free lock is busy",
        in MYSQL_ACQUIRE, "claim NOT IN (p_claim, {nobody}) AND weight = total;" => "claim <> p_claim AND weight = total;",
        MARIADB;
    "mysql-lost-waiter": "a release overlooks who waits",
        in "crates/lockstep-sql/src/mysql/sql/decide.sql", "IF v_turn = v_tail OR v_tail < v_place THEN" => "IF FALSE THEN",
        MARIADB_OWN;
    "mysql-fence-is-not-raised": "a holder that was replaced goes on writing",
        in "crates/lockstep-sql/src/mysql/sql/fence.sql", "VALUES ('', p_key, p_token)" => "VALUES ('-', p_key, p_token)",
        MARIADB_OWN;
    "mysql-renew-resurrects": "a lease that ran out comes back to life",
        in MYSQL_RENEW, "AND broken IS NULL AND until_us > {now_us};\n        IF" => "AND broken IS NULL;\n        IF",
        MARIADB;
    "etcd-release-without-guard": "a late release frees what has got the same name since",
        in "crates/lockstep-etcd/src/store.rs", "let guard = vec![equals(entry, With::CreateRevision(*create))];" => "let guard = vec![equals(entry, With::CreateRevision(*create)); usize::from(*create == 0)];",
        ETCD_OWN;
    "etcd-one-write-for-one-line": "two who come at the same time get the same token",
        in "crates/lockstep-etcd/src/change.rs", "batch.iter().all(|other| other.line != one.line)" => "batch.len() < MOST + one.line.len()",
        ETCD_OWN;
    "etcd-grant-without-looking": "one that waits in the middle gives up, and the one behind it takes a held lock",
        in "crates/lockstep-etcd/src/waiting.rs", "_ if self.hears_everybody() => vec![]," => "_ if self.hears_everybody() => vec![Step::Grant],",
        ETCD;
    "etcd-lease-counts-from-the-answer": "a holder trusts its lock longer than etcd keeps it",
        in "crates/lockstep-etcd/src/worker.rs", "session.confirmed(sent_at," => "session.confirmed(self.shared.clock.now().max(sent_at),",
        ETCD_THREAD;
    "etcd-dead-lease-granted": "a waiter is told that it holds with a lease that is long gone",
        in "crates/lockstep-etcd/src/worker.rs", "let signal = if claimed.session.lives_until(now) {" => "let signal = if now >= Moment::ZERO {",
        ETCD_THREAD;
    "line-lets-the-next-in": "a writer enters beside a reader",
        in "crates/lockstep-lock/src/line.rs", "used <= u64::from(of)" => "used <= u64::from(of) + 1",
        LINE;
    "zookeeper-trusts-a-follower": "a follower without a leader keeps a hold alive that the leader has given away",
        in ZOOKEEPER_STORE, "session.call(Op::Multi(all)).await.map_err(failed)? == Reply::Done" => "session.call(Op::Exists { path: \"/\".into(), watch: all.is_empty() }).await.is_ok()",
        ZOOKEEPER_THREE;
    "zookeeper-number-as-token": "tokens start again when the empty directory is removed",
        in ZOOKEEPER_STORE, "note.token.unwrap_or(Token::new(stat.czxid as u64))" => "Token::new(name[name.len() - 10..].parse().unwrap_or(0) + stat.version as u64)",
        ZOOKEEPER_FAULTS;
    "zookeeper-passes-strangers": "kazoo and we hold the same lock",
        in ZOOKEEPER_PARK, "let nodes = match engine.config.names.line(&children) {" => "let known = |name: &String| engine.config.names.read(name).is_some();\n        let children: Vec<String> = children.into_iter().filter(known).collect();\n        let nodes = match engine.config.names.line(&children) {",
        ZOOKEEPER_FAULTS;
    "zookeeper-watches-everybody": "every release wakes everybody who waits",
        in ZOOKEEPER_PARK, "let watch = with_scout(&line, watch, engine.config.names.layout);" => "let all = line.entries().iter().take(watch.len() + line.entries().len() - 2);\n        let mut watch: Vec<String> = all.map(|entry| entry.id.clone()).collect();\n        watch.extend(with_scout(&line, vec![], engine.config.names.layout));",
        ZOOKEEPER_REPLIES;
    "zookeeper-watch-is-late": "what happens between the list and the watch is never heard of",
        in ZOOKEEPER_PARK, "if first { record.token.get() as i64 }" => "if first { record.token.get() as i64 | i64::MAX }",
        ZOOKEEPER_DOWNGRADES;
    "zookeeper-keeps-an-old-line": "a list that was read late hides a reader",
        in "crates/lockstep-zookeeper/src/book.rs", "record.round == round && short" => "record.round >= round && short",
        ZOOKEEPER_DOWNGRADES;
    "zookeeper-adopts-the-dead": "after a new session the node of the old one is taken for one's own",
        in ZOOKEEPER_STORE, "stat.owner == id && mine.is_none()" => "(stat.owner == id || true) && mine.is_none()",
        ZOOKEEPER_SESSIONS;
    "command-outlives-its-lease": "the child still runs when the lock passes on",
        in "crates/lockstep-cli/src/run/plan.rs", "(now + self.grace).min(self.until - self.margin)" => "now + self.grace + self.grace * 1000",
        COMMAND;
}
