-- Notes whom to wake after the commit. Not the asker: its own answer will say it.
        IF v_inbox IS NOT NULL AND NOT v_next <=> p_asker
           AND LOCATE(HEX(v_inbox), @lockstep_wake) = 0 THEN
            SET @lockstep_wake = CONCAT(@lockstep_wake, HEX(v_inbox), ',');
        END IF;
