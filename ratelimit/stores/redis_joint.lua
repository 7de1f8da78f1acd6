-- Takes all charges or none, where each is enforced, has a key of its own, and neither a ban nor a value to count. What each
-- would find alone is told of all, whether they are taken or not.
-- KEYS: one for each charge, all in one slot. ARGV: for each charge three: "f", "a" or "s" for a window or the capacity of a
--   bucket; limit; window (us), for "f" the lifetime of a new key (ms). Then the time (us, "0" for the server's own), and the
--   cost, one for all charges or one for each.
-- Returns the time, then for each charge the units before it if it passes, -1 less those if it does not; for all but fixed
--   windows two more numbers of its state: the units of the window before, or the share; its beginning, number or last change.
-- The scripts of numbers and states stand in front of it if a charge needs them: a function that is made costs time.
local keys, argv, call = KEYS, ARGV, redis.call  -- looking a global up takes longer
local count = #keys
local base = 3 * count + 1
local now, cost, alike = argv[base] + 0, argv[base + 1], not argv[base + 2]
local units_of_all = cost + 0
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local texts, last, every = call('MGET', unpack(keys)), 1, true
local found = {now, nil, nil, nil, nil, nil, nil, nil}  -- with room for more: a list that grows is copied
for i = 1, count do
  -- MGET takes a key of another kind for none; GET says so before anything is written.
  local text = texts[i] or call('GET', keys[i])
  local kind, limit = argv[3 * i - 2], argv[3 * i - 1] + 0
  local needed = alike and units_of_all or argv[base + i]
  if kind == 'f' then
    local used = text and text + 0 or 0  -- what is no number is an error, before anything is written
    last = last + 1
    if used + needed <= limit then
      found[last] = used
    else
      found[last], every = -1 - used, false
    end
  else
    local window, units, in_use, first, third = argv[3 * i] + 0, nil, nil, nil, nil
    if kind == 'a' then
      first, units, third = anchored(text, window, now)
      in_use = units
    elseif kind == 's' then
      first, units, third = sliding(text, window, now)
      in_use = units + carried(first, third, window, now)
    else
      first, units, third = bucket(text, limit, window, now)
      in_use = third > 0 and units + 1 or units
      if limit > 0 then limit = kind + 0 end
    end
    if in_use + needed > limit then
      units, every = -1 - units, false
    end
    found[last + 1], found[last + 2], found[last + 3] = units, third, first
    last = last + 3
  end
end

last = 1
for i = 1, count do
  local key, text, kind = keys[i], texts[i], argv[3 * i - 2]
  if not alike then cost = argv[base + i] end
  -- A key without a lifetime would stay for ever: heal it, even when the call is refused.
  if kind == 'f' then
    last = last + 1
    if every then call('INCRBY', key, cost) end
    if text and call('PTTL', key) == -1 or every and not text then call('PEXPIRE', key, argv[3 * i]) end
  else
    local units, third, first = found[last + 1], found[last + 2], found[last + 3]
    local lives
    last = last + 3
    if every then units = units + cost elseif units < 0 then units = -1 - units end
    if every or text and call('PTTL', key) == -1 then
      local limit, window = argv[3 * i - 1] + 0, argv[3 * i] + 0
      if kind == 'a' or kind == 's' then
        lives = window_lifetime(kind, first, window, now)
      else
        lives = bucket_lifetime(first, units, limit, window, now)
      end
    end
    if every then
      call('SET', key, format(STATE, first, units, third), 'PX', lives)
    elseif lives then
      call('PEXPIRE', key, lives)
    end
  end
end
return found
