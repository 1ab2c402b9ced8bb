//! What would stay for ever.

use lockstep_testkit::servers;

/// Keys without an expiry: a crash would leave them for ever.
pub(crate) async fn immortals(pattern: String) -> anyhow::Result<Vec<String>> {
    let mut connection =
        redis::Client::open(servers::redis_url())?.get_multiplexed_async_connection().await?;
    let script = redis::Script::new(
        "local found = {}
         for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
           if redis.call('PTTL', key) == -1 then table.insert(found, key) end
         end
         return found",
    );
    Ok(script.arg(pattern).invoke_async(&mut connection).await?)
}
