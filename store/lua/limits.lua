-- Gives out places under limits: caps that the cluster's callers hold places of, rates whose tokens are used up.
-- KEYS  1 state  2 the caller's report number  3.. the limits, in the order of ARGV 1
-- ARGV  1 JSON {caller, report, acked, lease_ms, limits: [[cap or rate, held; -1 = a rate], ..], asks: [[wanted, limit, ..], ..]}
-- Returns {state, granted per ask .., left per limit ..}; state 1 = older than a report that was taken before: nothing is done
-- `held` is absolute, so a repeat heals what a lost reply left. Places that are not reported for a lease are free again. When Redis
-- was empty, was away or went back in time (the caller's acked report is not there), nothing is given out for one lease: by then
-- whoever holds places has reported them or has lost them. A rate counts from the end of that time with an empty bucket.
local q = cjson.decode(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if last >= q.report then return {1} end
local state = redis.call('HMGET', KEYS[1], 'since', 'at')
local since = tonumber(state[1] or '0')
-- A clock that was set counts as a loss too: what was written by another clock says nothing about this one.
local away = state[1] and math.abs(now - tonumber(state[2])) > q.lease_ms / 2
if not state[1] or away or last < q.acked then since = now + q.lease_ms end -- guard: limits-after-loss
redis.call('HSET', KEYS[1], 'since', since, 'at', now)
redis.call('PEXPIRE', KEYS[1], q.lease_ms)
redis.call('SET', KEYS[2], q.report, 'PX', q.lease_ms)
local left, held = {}, {}
for i, limit in ipairs(q.limits) do
  local key, size = KEYS[i + 2], limit[1]
  if limit[2] < 0 then
    local bucket = redis.call('HMGET', key, 'tokens', 'at')
    local from = math.max(tonumber(bucket[2] or '0'), since)
    local tokens = from == since and 0 or tonumber(bucket[1])
    left[i] = math.min(math.max(1, size), tokens + math.max(0, now - from) * size / 1000)
  else
    left[i] = size - limit[2]
    local all = redis.call('HGETALL', key)
    for f = 1, #all, 2 do
      local places, till = string.match(all[f + 1], '(%d+):(%d+)')
      if tonumber(till) < now or tonumber(till) > now + 2 * q.lease_ms then redis.call('HDEL', key, all[f])
      elseif all[f] ~= q.caller then left[i] = left[i] - places end
    end
    held[i] = limit[2]
  end
end
local answer = {0}
for _, ask in ipairs(q.asks) do
  local given = now < since and 0 or ask[1]
  for l = 2, #ask do given = math.max(0, math.min(given, math.floor(left[ask[l]]))) end
  for l = 2, #ask do
    local i = ask[l]
    left[i] = left[i] - given
    if held[i] then held[i] = held[i] + given end
  end
  answer[#answer + 1] = given
end
for i, limit in ipairs(q.limits) do
  local key = KEYS[i + 2]
  if not held[i] then
    redis.call('HSET', key, 'tokens', left[i], 'at', now)
    redis.call('PEXPIRE', key, math.ceil(math.max(1, 1 / limit[1]) * 1000) + q.lease_ms)
  elseif held[i] > 0 then
    redis.call('HSET', key, q.caller, held[i] .. ':' .. now + q.lease_ms)
    redis.call('PEXPIRE', key, q.lease_ms)
  else
    redis.call('HDEL', key, q.caller)
  end
  answer[#answer + 1] = now < since and 0 or math.max(0, math.floor(left[i]))
end
return answer
