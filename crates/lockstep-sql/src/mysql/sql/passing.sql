-- Grants a lock to the first waiter whose lease lives, and to those that fit beside it; waiters before
-- that one are dead and forgotten. A piece of a procedure: to enter one costs more than this does.
        {first}
        IF v_seq IS NULL THEN
            UPDATE lockstep_lock SET claim = {nobody}, turn = tail WHERE lock_key = p_key;
        ELSE
            DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq > v_turn AND seq <= v_seq;
            IF v_seq >= v_tail THEN
                -- Those who joined others may be behind the tail.
                SELECT GREATEST(v_seq, COALESCE(MAX(seq), 0)) INTO v_tail
                  FROM lockstep_waiter WHERE lock_key = p_key;
            END IF;
            UPDATE lockstep_lock
               SET token = token + 1, claim = v_next, owner = v_owner, label = v_label,
                   weight = v_weight, since_ms = v_now_us DIV 1000,
                   until_us = v_now_us + v_ttl_us, broken = NULL, turn = v_seq, tail = v_tail
             WHERE lock_key = p_key;
            {tell}
            IF v_weight < v_total THEN
                CALL lockstep_join_v1(p_key, v_now_us, p_asker);
            END IF;
        END IF;
