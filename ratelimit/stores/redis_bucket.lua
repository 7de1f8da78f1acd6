-- Many checks of one token or leaky bucket's rate, each on its own, in order: what a check takes the next one meets.
-- KEYS: one for each check, all in one slot. ARGV: 1 limit; 2 capacity; 3 window (us); then the time (us, "0" for the
--   server's own) and the cost, one pair for all checks or one for each.
-- Returns the time, then for each check three numbers of its state before it: the units in use if it passes, -1 less those
--   if it is refused, or the error it met; the share; the time of the last change.
local limit, capacity, window, alike = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), #ARGV == 5
local now, cost = tonumber(ARGV[4]), tonumber(ARGV[5])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if limit == 0 then capacity = 0 end
local call, format = redis.pcall, string.format  -- pcall: a key of another kind must not take the other checks with it
local found = {now}
for i, key in ipairs(KEYS) do
  if not alike then
    now, cost = tonumber(ARGV[2 + 2 * i]), tonumber(ARGV[3 + 2 * i])
    if now == 0 then now = found[1] end
  end
  local text, at = call('GET', key), 3 * i
  if text and text.err then
    found[at - 1], found[at], found[at + 1] = text, 0, 0
  else
    local last, units, share = bucket(text, limit, window, now)
    local after = units + cost
    found[at - 1], found[at], found[at + 1] = units, share, last
    if after < capacity or after == capacity and share == 0 then
      local state, lifetime = format(STATE, last, after, share), bucket_lifetime(last, after, limit, window, now)
      local failed = call('SET', key, state, 'PX', lifetime)
      if failed.err then found[at - 1] = failed end
    else
      found[at - 1] = -1 - units
      -- A key without a lifetime would stay for ever: heal it, even when the check is refused.
      if text and call('PTTL', key) == -1 then
        call('PEXPIRE', key, bucket_lifetime(last, units, limit, window, now))
      end
    end
  end
end
return found
