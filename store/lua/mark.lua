-- Ends a plan pipeline: writes plan_seq, by which a later drain sees whether Redis still has everything that was planned.
-- KEYS  1 fence
-- ARGV  1 epoch  2 token  3 plan_seq  4 "1" = compare the fence
-- Returns 0 = written, 1 = somebody newer owns the partition, 2 = Redis lost data of ours
-- A repeat writes the same number.
local fence = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'plan_seq')
if ARGV[4] == '1' then -- guard: planning-fence
  if not fence[1] or tonumber(fence[1]) < tonumber(ARGV[1]) then return 2 end
  if tonumber(fence[1]) > tonumber(ARGV[1]) or fence[2] ~= ARGV[2] then return 1 end
  if tonumber(fence[3]) < tonumber(ARGV[3]) - 1 then return 2 end
end
redis.call('HSET', KEYS[1], 'plan_seq', ARGV[3])
return 0
