-- Moves due fires of one bucket into the queue of its shard, as one message.
-- KEYS  1 fence  2 bucket  3 queue          (one hash tag)
-- ARGV  1 epoch  2 token  3 plan_seq  4 now (ms)  5 fires at most  6 queue cap (fires)  7 partition  8 "1" = compare the fence
--       9 version of the message (fires.py)
-- Returns {state, drained, due of the next fire in ms or -1, fires in the queue}
--         state 0 = done, 1 = somebody newer owns the partition, 2 = Redis lost data of ours
-- Scripts are not rolled back: XADD comes before ZREM, so a stop between them repeats fires and never loses one.
-- A repeat of the whole script moves what is due then; a fire moved twice is absorbed by the key of `runs`.
if ARGV[8] == '1' then -- guard: fence
  local fence = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'plan_seq')
  if not fence[1] or tonumber(fence[1]) < tonumber(ARGV[1]) then return {2, 0, -1, 0} end
  if tonumber(fence[1]) > tonumber(ARGV[1]) or fence[2] ~= ARGV[2] then return {1, 0, -1, 0} end
  if tonumber(fence[3]) < tonumber(ARGV[3]) then return {2, 0, -1, 0} end
end
-- Every message carries the running count of fires (field c), so that the depth costs two reads of the ends.
-- A message of somebody else has no such fields; it counts as 0 and stops nobody.
local function field(entry, i) return tonumber(entry[2][i] or '') or 0 end
local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
local total, depth = 0, 0
if last[1] then
  total = field(last[1], 4)
  local first = redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', 1)
  depth = math.max(total - field(first[1], 4) + field(first[1], 6), 0)
end
local room = math.min(tonumber(ARGV[5]), tonumber(ARGV[6]) - depth) -- guard: queue-cap
local fires = {}
if room > 0 then
  fires = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[4], 'LIMIT', 0, room) -- guard: early-drain
  if #fires > 0 then
    total = total + #fires
    local message = {tonumber(ARGV[9]), tonumber(ARGV[7]), table.concat(fires)}
    if message[1] >= 2 then message[4] = tonumber(ARGV[1]) end
    redis.call('XADD', KEYS[3], '*', 'm', cmsgpack.pack(message), 'c', total, 'n', #fires)
    redis.call('ZREMRANGEBYRANK', KEYS[2], 0, #fires - 1) -- guard: xadd-first
  end
end
local next_fire = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return {0, #fires, tonumber(next_fire[2] or '-1'), depth + #fires}
