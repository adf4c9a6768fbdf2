-- Gives leases of one shard back, those that are still the caller's.
-- KEYS  leases
-- ARGV  1 token
-- Returns the number of leases given back; a repeat finds none of them ours and gives back nothing
local released = 0
for _, key in ipairs(KEYS) do
  -- guard: released-lease
  if redis.call('GET', key) == ARGV[1] then released = released + redis.call('DEL', key) end
end
return released
