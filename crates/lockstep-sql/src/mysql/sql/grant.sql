-- Writes into the lock's row that who was first in the queue has it now; its place is gone already.
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
