-- Whether a holder that listens here has lost its connection, and wanted its locks to end with it:
-- then its session has an advisory lock of that name. A session that comes back waits for the end of
-- this transaction.
CREATE OR REPLACE FUNCTION {schema}.lockstep_gone_v1(p_inbox text)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $body$
BEGIN
    IF p_inbox IS NULL OR NOT starts_with(p_inbox, 'lockstepb_') THEN
        RETURN false;
    END IF;
    RETURN pg_try_advisory_xact_lock_shared(hashtextextended(p_inbox, 0));
END $body$;
