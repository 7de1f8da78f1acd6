-- Many checks of one fixed window, each on its own, in order: what a check takes the next one meets.
-- KEYS: one for each check, all in one slot. ARGV: 1 the limit; 2 the lifetime of a new key (ms); then the cost, one for all
--   checks or one for each.
-- Returns for each check: the units used before it if it passes, -1 less those if it is refused, or the error it met.
local limit, lifetime, alike = tonumber(ARGV[1]), ARGV[2], #ARGV == 3
local call, found = redis.pcall, {}  -- pcall: a key that is no counter must not take the other checks with it
for i, key in ipairs(KEYS) do
  local cost = alike and ARGV[3] or ARGV[2 + i]
  local text = call('GET', key)
  if text and text.err then
    found[i] = text
  else
    local used = text and tonumber(text) or 0
    local after = used + cost <= limit and call('INCRBY', key, cost)
    local failed = type(after) == 'table'
    found[i] = failed and after or after and used or -1 - used
    -- A key without a lifetime would stay for ever: heal it, even when the check is refused.
    if text and call('PTTL', key) == -1 or not text and after and not failed then call('PEXPIRE', key, lifetime) end
  end
end
return found
