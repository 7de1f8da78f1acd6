-- Takes or renews places; a member without a place gets none where all are taken. See ratelimit/stores/places.py.
-- KEYS: one sorted set for each room, of members by the end of their lease (us). ARGV: 1 the time (us), "0" for the server's
--   own; then for each room: how many places it has, the length of a lease (us), the number of members, the members.
-- Returns for each room the places taken, then for each of its members 1 if it has one else 0. Without members, nothing is
--   written.
local SKEW = 60000000  -- a lease that ends later than one can last was made by a clock that was put right since

local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local function whole(number) return string.format('%.0f', number) end

local found, at = {}, 2
for _, key in ipairs(KEYS) do
  local most, lease, members = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local latest, ends, written = whole(now + lease + SKEW), whole(now + lease), false
  local taken = redis.call('ZCOUNT', key, '(' .. whole(now), latest)
  local head = #found + 1
  found[head] = taken
  for i = at + 3, at + 2 + members do
    local member = ARGV[i]
    local known = tonumber(redis.call('ZSCORE', key, member) or 0)
    local living = known > now and known <= now + lease + SKEW
    local held = living or taken < most
    if held then
      if not living then taken = taken + 1 end
      redis.call('ZADD', key, ends, member)
      written = true
    end
    found[#found + 1] = held and 1 or 0
  end
  if written then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now))
    redis.call('ZREMRANGEBYSCORE', key, '(' .. latest, '+inf')
    redis.call('PEXPIRE', key, whole(math.ceil((lease + math.min(lease, SKEW)) / 1000)))
    found[head] = taken
  end
  at = at + 3 + members
end
return found
