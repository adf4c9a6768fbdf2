-- name: tenant_caps
-- How many runs of a tenant may go on at once, of those for whom that is limited.
select tenant, max_running from bucketd.tenants
