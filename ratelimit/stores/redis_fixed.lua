-- Many checks of one fixed window, each on its own, in order: what a check takes the next one meets.
-- KEYS: one for each check, all in one slot. ARGV: 1 the limit; 2 the lifetime of a new key (ms); then the cost, one for all
--   checks or one for each.
-- Returns for each check: the units used before it if it passes, -1 less those if it is refused, or the error it met. For a
--   single check just that: a list costs the server more than the GET.
local limit, alike = ARGV[1] + 0, #ARGV == 3
local call, number = redis.pcall, tonumber  -- pcall: a key that is no counter must not take the other checks with it
local found = KEYS[2] and {}
for i = 1, #KEYS do
  local key, cost = KEYS[i], alike and ARGV[3] or ARGV[2 + i]
  local text = call('GET', key)
  local reply, new = text, false
  if not (text and text.err) then
    local used = text and number(text) or 0
    local after = used + cost
    reply = -1 - used
    if after <= limit then
      local counted = call('INCRBY', key, cost)
      if counted == after then reply, new = used, not text else reply = counted end
    end
    -- A key without a lifetime would stay for ever: heal it, even when the check is refused.
    if new or text and call('PTTL', key) == -1 then call('PEXPIRE', key, ARGV[2]) end
  end
  if not found then return reply end
  found[i] = reply
end
return found
