-- Renews the leases of one shard that are still the caller's.
-- KEYS  leases
-- ARGV  1 token  2 time to live (ms)
-- Returns an array of 1 (renewed) and 0 (not ours any more) in the order of KEYS
-- A repeat renews again: harmless, the holder counts from the start of its attempt.
local renewed = {}
for i, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then -- guard: own-lease
    redis.call('PEXPIRE', key, ARGV[2])
    renewed[i] = 1
  else
    renewed[i] = 0
  end
end
return renewed
