-- Many checks of one anchored or sliding window, each on its own, in order: what a check takes the next one meets.
-- KEYS: one for each check, all in one slot. ARGV: 1 limit; 2 "a" or "s"; 3 window (us); then the time (us, "0" for the
--   server's own) and the cost, one pair for all checks or one for each.
-- Returns the time, then for each check three numbers of its state before it: the units if it passes, -1 less those if it is
--   refused, or the error it met; the units of the window before; the window's beginning or number.
local limit, kind, window, alike = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), #ARGV == 5
local now, cost = tonumber(ARGV[4]), tonumber(ARGV[5])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local state_of = kind == 'a' and anchored or sliding
local call = redis.pcall  -- a key of another kind must not take the other checks with it
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
    local first, units, previous = state_of(text, window, now)
    local in_use = kind == 's' and units + carried(first, previous, window, now) or units
    found[at - 1], found[at], found[at + 1] = units, previous, first
    if in_use + cost <= limit then
      local state = string.format(STATE, first, units + cost, previous)
      local failed = call('SET', key, state, 'PX', window_lifetime(kind, first, window, now))
      if failed.err then found[at - 1] = failed end
    else
      found[at - 1] = -1 - units
      -- A key without a lifetime would stay for ever: heal it, even when the check is refused.
      if text and call('PTTL', key) == -1 then call('PEXPIRE', key, window_lifetime(kind, first, window, now)) end
    end
  end
end
return found
