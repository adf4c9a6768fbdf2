-- name: narrow
-- Leaves nested loops over indexes only, to the end of the transaction; answers what was set before.
with before as materialized (
    select name, current_setting(name) as value
    from unnest(array['enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'enable_sort',
        'enable_incremental_sort']) name
)
select name, value from before where set_config(name, 'off', true) = 'off'

-- name: restore
-- Puts settings back, to the end of the transaction.
select set_config(name, value, true) from unnest(%(names)s::text[], %(values)s::text[]) s(name, value)
