-- Raises the fence of a partition to a new owner's epoch; refuses to lower it.
-- KEYS  1 fence
-- ARGV  1 epoch  2 token
-- Returns 1 = the fence is ours now (plan_seq 0), 0 = a newer epoch stands there
-- A repeat with the same epoch and token sets plan_seq to 0 again: the owner plans its horizon anew after it.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return 0 end -- guard: fence-rises
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'token', ARGV[2], 'plan_seq', 0)
return 1
