-- The first waiter whose lease lives; if there is none, those that are left are dead, and forgotten.
        SELECT seq, claim, owner, label, weight, inbox, ttl_us
          INTO v_seq, v_next, v_owner, v_label, v_weight, v_inbox, v_ttl_us
          FROM lockstep_waiter
         WHERE lock_key = p_key AND seq > v_turn AND until_us > v_now_us
         ORDER BY seq LIMIT 1 FOR UPDATE;
        IF v_seq IS NULL THEN
            DELETE FROM lockstep_waiter
             WHERE lock_key = p_key AND seq > v_turn AND until_us <= v_now_us;
        END IF;
