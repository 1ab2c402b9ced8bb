-- Asks once, for a lock that is not free or was never asked for; see ask.sql. Answers 'granted
-- <token>', 'queued <token of the last grant> <how many are ahead> <us left of the lease that ends
-- first>', 'busy', 'differs <total>' or 'broken <reason>': text, because taking a row of columns out
-- of a function costs a tenth of the whole call.
CREATE OR REPLACE FUNCTION {schema}.lockstep_acquire_v1(
    p_key text, p_claim uuid, p_owner uuid, p_label text, p_inbox text, p_ttl_us bigint,
    p_wait boolean, p_weight integer, p_total integer
) RETURNS text LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    several CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    now_us bigint := {now_us};
    used bigint;
    before bigint;
    held {schema}.lockstep_lock;
    mine {schema}.lockstep_holder;
    place bigint;
    setting text;
BEGIN
    -- Who does not want to wait changes nothing, so it need not stand in line for the row either.
    IF NOT p_wait THEN
        PERFORM FROM {schema}.lockstep_lock AS l
          WHERE l.key = p_key AND l.claim <> p_claim AND l.until_us > {now_us}
            AND l.weight = l.total AND l.total = p_total
            AND NOT coalesce(starts_with(l.inbox, 'lockstepb_'), false);
        IF FOUND THEN
            RETURN 'busy';
        END IF;
    END IF;

    IF p_weight = 1 AND p_total = 2147483647 THEN
        held.token := {schema}.lockstep_join_readers_v1(
            p_key, p_claim, p_owner, p_label, p_inbox, p_ttl_us
        );
        IF held.token IS NOT NULL THEN
            RETURN 'granted ' || held.token;
        END IF;
    END IF;

    -- Who waits already only says that it is still there, and stays out of the way of whoever gives
    -- the lock back: that needs the lock's row, and a thousand waiters would stand before it. What
    -- is read here without locking is not too old to act upon: as long as the place is the one that
    -- this statement saw, its claim has not been granted anything meanwhile. Only where one holder
    -- has all of it, otherwise somebody who died in the queue may be all that is in the way; and only
    -- where it is the lease that says how long.
    IF p_wait THEN
        UPDATE {schema}.lockstep_waiter AS w
           SET until_us = now_us + p_ttl_us, inbox = coalesce(p_inbox, w.inbox)
          FROM {schema}.lockstep_lock AS l
         WHERE w.claim = p_claim AND w.key = p_key AND w.until_us > now_us
           AND l.key = p_key AND l.claim <> p_claim AND l.until_us > now_us AND l.weight = l.total
           AND NOT coalesce(starts_with(l.inbox, 'lockstepb_'), false)
        RETURNING w.seq, l.token, l.turn, l.until_us INTO place, held.token, held.turn, held.until_us;
        IF FOUND THEN
            setting := set_config('synchronous_commit', 'off', true);
            RETURN {schema}.lockstep_queued_v1(p_key, place, now_us, held);
        END IF;
    END IF;

    LOOP
        -- Locks the row, and says in the row itself that somebody waits, so that a release that
        -- is waiting for the row sees it.
        UPDATE {schema}.lockstep_lock AS l SET tail = l.tail + 1
         WHERE l.key = p_key RETURNING l.* INTO held;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.lockstep_lock AS l
            (key, token, claim, owner, label, weight, total, inbox, since_ms, until_us)
        VALUES (p_key, 1, p_claim, p_owner, p_label, p_weight, p_total, p_inbox, now_us / 1000,
                now_us + p_ttl_us)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN 'granted 1';
        END IF;
    END LOOP;

    -- The row is ours until the end of this transaction; only now does the clock count.
    PERFORM {schema}.lockstep_alone_v1(held);
    now_us := {now_us};
    before := held.turn;
    IF held.claim IS NULL OR held.until_us <= now_us
        OR held.claim <> p_claim AND {schema}.lockstep_gone_v1(held.inbox)
    THEN
        IF held.claim IS NOT NULL THEN
            PERFORM {schema}.lockstep_fence_v1(p_key, held.token + 1);
        END IF;
        held := {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, p_claim);
    ELSIF held.weight < held.total THEN
        held := {schema}.lockstep_heal_v1(held, now_us, p_claim);
    END IF;

    IF held.claim IS NULL THEN
        UPDATE {schema}.lockstep_lock AS l
           SET token = l.token + 1, claim = p_claim, owner = p_owner, label = p_label,
               weight = p_weight, total = p_total, inbox = p_inbox, since_ms = now_us / 1000,
               until_us = now_us + p_ttl_us, broken = NULL
         WHERE l.key = p_key RETURNING l.* INTO held;
        RETURN 'granted ' || held.token;
    END IF;
    IF held.claim = p_claim THEN
        IF held.broken IS NOT NULL THEN
            RETURN 'broken ' || held.broken;
        END IF;
        UPDATE {schema}.lockstep_lock AS l
           SET until_us = now_us + p_ttl_us, inbox = coalesce(p_inbox, l.inbox)
         WHERE l.key = p_key;
        RETURN 'granted ' || held.token;
    END IF;
    IF held.claim = several THEN
        UPDATE {schema}.lockstep_holder AS h
           SET until_us = CASE WHEN h.broken IS NULL THEN now_us + p_ttl_us ELSE h.until_us END,
               inbox = coalesce(p_inbox, h.inbox)
         WHERE h.key = p_key AND h.claim = p_claim RETURNING h.* INTO mine;
        IF FOUND THEN
            RETURN coalesce('broken ' || mine.broken, 'granted ' || mine.token);
        END IF;
    END IF;

    IF held.total <> p_total THEN
        RETURN 'differs ' || held.total;
    END IF;
    IF held.weight < held.total AND held.turn = held.tail THEN
        used := held.weight;
        IF held.claim = several THEN
            SELECT sum(h.weight) INTO used FROM {schema}.lockstep_holder AS h WHERE h.key = p_key;
        END IF;
        IF used + p_weight <= held.total THEN
            held := {schema}.lockstep_add_v1(
                held, p_claim, p_owner, p_label, p_inbox, p_weight, now_us / 1000,
                now_us + p_ttl_us
            );
            RETURN 'granted ' || held.token;
        END IF;
    END IF;
    IF NOT p_wait THEN
        RETURN 'busy';
    END IF;

    -- A place whose lease has run out is lost, and the claim goes to the end.
    INSERT INTO {schema}.lockstep_waiter AS w
        (key, seq, claim, owner, label, weight, inbox, ttl_us, since_ms, until_us)
    VALUES (p_key, held.tail, p_claim, p_owner, p_label, p_weight, p_inbox, p_ttl_us,
            now_us / 1000, now_us + p_ttl_us)
    ON CONFLICT (claim, key) DO UPDATE
       SET until_us = excluded.until_us, inbox = coalesce(excluded.inbox, w.inbox),
           seq = CASE WHEN w.until_us > now_us THEN w.seq ELSE excluded.seq END,
           ttl_us = CASE WHEN w.until_us > now_us THEN w.ttl_us ELSE excluded.ttl_us END,
           since_ms = CASE WHEN w.until_us > now_us THEN w.since_ms ELSE excluded.since_ms END
    RETURNING w.seq INTO place;
    IF held.turn = held.tail THEN
        -- Nobody waited before: the turn was set behind the place that is taken now.
        UPDATE {schema}.lockstep_lock AS l SET turn = place - 1
         WHERE l.key = p_key RETURNING l.* INTO held;
    ELSIF held.turn = before THEN
        -- Nobody was granted anything. A place in the queue that a crash of the server takes away
        -- is asked for again when the connection comes back; waiting for the disk would make the
        -- holder's release, which needs the same row, wait as well.
        setting := set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN {schema}.lockstep_queued_v1(p_key, place, now_us, held);
END $body$;
