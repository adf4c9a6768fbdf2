-- name: alone
-- Takes an advisory lock until the end of the transaction, unless somebody has it. That transaction does nothing else, so it may
-- lie idle for as long as the work takes: it holds no snapshot, and vacuum goes on.
select pg_try_advisory_xact_lock(%(number)s::bigint), set_config('idle_in_transaction_session_timeout', '0', true)
