-- Many checks of one anchored or sliding window, each on its own, in order: what a check takes the next one meets.
-- KEYS: one for each check, all in one slot. ARGV: 1 limit; 2 "a" or "s"; 3 window (us); then the time (us, "0" for the
--   server's own) and the cost, one pair for all checks or one for each.
-- Returns the time, then for each check three numbers of its state before it: the units if it passes, -1 less those if it is
--   refused, or the error it met; the units of the window before; the window's beginning or number.
local limit, kind, window, alike = ARGV[1] + 0, ARGV[2], ARGV[3] + 0, #ARGV == 5
local now, cost = ARGV[4] + 0, ARGV[5] + 0
local call = redis.pcall  -- a key of another kind must not take the other checks with it
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local state_of = kind == 'a' and anchored or sliding
local found = {now}
for i = 1, #KEYS do
  local key, units, previous, first = KEYS[i], 0, 0, 0
  if not alike then
    now, cost = ARGV[2 + 2 * i] + 0, ARGV[3 + 2 * i] + 0
    if now == 0 then now = found[1] end
  end
  local text = call('GET', key)
  local failed = text and text.err and text
  if not failed then
    first, units, previous = state_of(text, window, now)
    local in_use = kind == 's' and units + carried(first, previous, window, now) or units
    if in_use + cost <= limit then
      local state = format(STATE, first, units + cost, previous)
      local done = call('SET', key, state, 'PX', window_lifetime(kind, first, window, now))
      failed = done.err and done
    else
      -- A key without a lifetime would stay for ever: heal it, even when the check is refused.
      if text and call('PTTL', key) == -1 then call('PEXPIRE', key, window_lifetime(kind, first, window, now)) end
      units = -1 - units
    end
  end
  if failed and not KEYS[2] then return failed end
  local at = 3 * i
  found[at - 1], found[at], found[at + 1] = failed or units, previous, first
end
return found
