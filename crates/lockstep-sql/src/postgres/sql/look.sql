-- What must be known about a server before it is trusted with locks.
SELECT to_regprocedure('{schema}.lockstep_acquire_v1(text,uuid,uuid,text,text,bigint,boolean,integer,integer)')
           IS NOT NULL
       AND to_regprocedure('{schema}.lockstep_release_v1(text,uuid,boolean)') IS NOT NULL
       AND to_regprocedure('{schema}.lockstep_break_v1(text,text,boolean)') IS NOT NULL
       AND to_regprocedure('{schema}.lockstep_renew_v1(text[],uuid[],bigint[])') IS NOT NULL
       AND to_regprocedure('{schema}.lockstep_verify_v1(uuid,text,text,text,bigint)') IS NOT NULL
       AND to_regprocedure('{schema}.lockstep_mutex_v1(text,bigint)') IS NOT NULL
           AS migrated,
       current_setting('server_encoding') AS encoding,
       current_setting('transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('fsync') AS fsync
