//! The scripts against the reference; see [`lockstep_testkit::reference`].

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use lockstep_testkit::reference::{Comparison, Says, Server};

use crate::support::Bench;

const SAYS: Says = Says { breaks: true, repeats: false, counts_dead: true };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scripts_do_what_the_reference_does() {
    let runs = (0..8).map(|seed| {
        tokio::spawn(async move {
            let bench = Bench::new().await;
            let store = bench.store();
            Comparison::new(seed, &store, Keys(bench), SAYS).await.run(600).await;
        })
    });
    for run in join_all(runs.collect::<Vec<_>>()).await {
        run.unwrap();
    }
}

/// What the store has written.
struct Keys(Bench);

impl Keys {
    async fn run(&mut self, script: &str, by: Duration) -> Vec<String> {
        let (prefix, by) = (self.0.prefix.clone(), by.as_millis().to_string());
        self.0.raw(&["EVAL", script, "0", &prefix, &by]).await
    }
}

impl Server for Keys {
    fn let_time_pass(&mut self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.run(LET_TIME_PASS, by).await;
        })
    }

    fn audit(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            assert_eq!(self.run(AUDIT, Duration::ZERO).await, [""; 0]);
        })
    }
}

/// Every lease ends earlier, by a little more than was asked for, since a lease may last a millisecond
/// longer than it should; and so does every key, except that none goes that somebody may wait for: who
/// waits would have asked before that, and this test may not.
const LET_TIME_PASS: &str = "
    local call, by = redis.call, ARGV[2] + 5
    for _, key in ipairs(call('KEYS', ARGV[1] .. ':1:*')) do
      local kind = string.match(key, '}:(.)$') or string.match(key, ':(o):%x+$')
      local ends_with_lease = not kind and string.sub(call('GET', key), 1, 1) == 'a'
      call('PEXPIRE', key, math.max(call('PTTL', key) - by, ends_with_lease and 0 or 500000))
      if kind == 'e' or kind == 'o' then
        for _, member in ipairs(call('ZRANGE', key, 0, -1)) do
          call('ZINCRBY', key, -by * 1000, member)
        end
      elseif kind == 'w' then
        local found = call('HGETALL', key)
        for i = 1, #found, 2 do
          local asked, rest = string.match(found[i + 1], '^(%d+)(.*)$')
          call('HSET', key, found[i], string.format('%.0f', asked - by * 1000) .. rest)
        end
      end
    end
    return {}";

/// What must be true of the keys of every lock: none lives for ever, none ends before a lease in it,
/// and the sums are right.
const AUDIT: &str = "
    local call, wrong = redis.call, {}
    local time = call('TIME')
    local now = time[1] * 1000000 + time[2]
    local function must_live(key, until_us)
      if call('PTTL', key) + 2 < (until_us - now) / 1000 then
        table.insert(wrong, key .. ' ends before a lease in it')
      end
    end
    local locks, queues = {}, {}
    for _, key in ipairs(call('KEYS', ARGV[1] .. ':1:*')) do
      if call('PTTL', key) < 0 then
        table.insert(wrong, key .. ' is immortal')
      end
      local kind = string.match(key, '}(.*)$')
      if kind == '' then
        table.insert(locks, key)
      elseif kind == ':w' then
        table.insert(queues, key)
      end
    end
    for _, key in ipairs(queues) do
      local lock = string.sub(key, 1, -3)
      for _, waiter in ipairs(call('HVALS', key)) do
        local asked, ttl = string.match(waiter, '^(%d+) %d+ (%d+) ')
        must_live(lock .. ':w', asked + ttl * 1000)
        must_live(lock .. ':q', asked + ttl * 1000)
      end
      if call('HLEN', key) ~= call('ZCARD', lock .. ':q') then
        table.insert(wrong, key .. ' is not the queue')
      end
    end
    for _, lock in ipairs(locks) do
      local used = string.match(call('GET', lock), '^s%d+ %d+ %d+ (%d+) %d+$')
      if not used then
        if call('EXISTS', lock .. ':h', lock .. ':e') > 0 then
          table.insert(wrong, lock .. ' is held by one and by several')
        end
      else
        local ends = call('ZRANGE', lock .. ':e', 0, -1, 'WITHSCORES')
        for i = 2, #ends, 2 do
          for _, suffix in ipairs({'', ':h', ':e'}) do
            must_live(lock .. suffix, ends[i])
          end
        end
        local sum = 0
        for _, words in ipairs(call('HVALS', lock .. ':h')) do
          sum = sum + (string.match(words, '^%d+ %d+ %d+ %d+ (%d+)/') or 1)
        end
        if #ends > 0 and sum ~= tonumber(used) or call('HLEN', lock .. ':h') * 2 ~= #ends then
          table.insert(wrong, lock .. ' is not the sum of its holders')
        end
      end
    end
    return wrong";
