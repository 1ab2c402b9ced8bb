-- What must be known about a server before it is trusted with locks.
SELECT (SELECT COUNT(*) FROM information_schema.routines
         WHERE routine_schema = DATABASE() AND routine_name IN (
               'lockstep_wake_v1', 'lockstep_acquire_v1', 'lockstep_decide_v1',
               'lockstep_release_v1', 'lockstep_leave_v1', 'lockstep_break_v1',
               'lockstep_renew_v1', 'lockstep_fence_v1')) = 8 AS migrated,
       @@innodb_flush_log_at_trx_commit AS flush_log,
       @@log_bin AS log_bin,
       @@sync_binlog AS sync_binlog,
       @@binlog_format AS binlog_format,
       SLEEP(0.002) >= 0 AND SYSDATE(6) = NOW(6) AS sysdate_is_now
