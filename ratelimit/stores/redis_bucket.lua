-- Many checks of one token or leaky bucket's rate, each on its own, in order: what a check takes the next one meets.
-- KEYS: one for each check, all in one slot. ARGV: 1 limit; 2 capacity; 3 window (us); then the time (us, "0" for the
--   server's own) and the cost, one pair for all checks or one for each.
-- Returns the time, then for each check three numbers of its state before it: the units in use if it passes, -1 less those
--   if it is refused, or the error it met; the share; the time of the last change.
-- For a single check that passes just its state after it, a text, which tells the time too unless a clock stepped back: a list
--   costs the server more than the GET.
local limit, capacity, window, alike = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, #ARGV == 5
local now, cost = ARGV[4] + 0, ARGV[5] + 0
local call = redis.pcall  -- a key of another kind must not take the other checks with it
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if limit == 0 then capacity = 0 end
local found = KEYS[2] and {now}
for i = 1, #KEYS do
  local key, state, units, share, last = KEYS[i], nil, 0, 0, 0
  if not alike then
    now, cost = ARGV[2 + 2 * i] + 0, ARGV[3 + 2 * i] + 0
    if now == 0 then now = found[1] end
  end
  local text = call('GET', key)
  local failed = text and text.err and text
  if not failed then
    last, units, share = bucket(text, limit, window, now)
    local after = units + cost
    if after < capacity or after == capacity and share == 0 then
      state = format(STATE, last, after, share)
      local done = call('SET', key, state, 'PX', bucket_lifetime(last, after, limit, window, now))
      failed = done.err and done
    else
      -- A key without a lifetime would stay for ever: heal it, even when the check is refused.
      if text and call('PTTL', key) == -1 then
        call('PEXPIRE', key, bucket_lifetime(last, units, limit, window, now))
      end
      units = -1 - units
    end
  end
  if found then
    local at = 3 * i
    found[at - 1], found[at], found[at + 1] = failed or units, share, last
  elseif failed then
    return failed
  else
    return state and last == now and state or {now, units, share, last}
  end
end
return found
