INSERT INTO lockstep_lock
    (key, token, claim, owner, label, since_ms, until_ns, inbox, broken, weight, total)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
