-- Remembers the newest timeline of a Postgres database that anybody works on.
-- KEYS  1 timeline
-- ARGV  1 timeline of the caller's Postgres  2 ms to remember it
-- Returns the newest one: greater than ARGV 1 = the caller's Postgres is an old primary
-- A repeat only keeps it in memory for longer; one that is older changes nothing, so it is forgotten when nobody works on it any more.
local seen = tonumber(redis.call('GET', KEYS[1]) or '0')
if seen > tonumber(ARGV[1]) then return seen end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return tonumber(ARGV[1])
