-- Takes all charges or none: any algorithm, bans and shadow included, in one run. See ratelimit/transaction.py.
-- KEYS: state keys and ban keys, all in one slot.
-- ARGV: 1 the time in microseconds, "0" for the server's own; 2 the mode: "0" look, "1" take, "2" settle, without asking;
--   3 how long ago what is settled was taken (us); then for each charge: kind, place of its key in KEYS, limit, capacity,
--   window (us), cost, "0" to enforce or the number of its rule in shadow, lifetime (ms; fixed and distinct only), place of
--   its ban key or "0", lengths of its bans (us, by commas), member.
-- Returns: 1 if all enforced charges pass else 0, the time, then for each charge: 1 if it passes else 0, until when it is
--   banned (us, 0 if not), and three numbers of its state before it.
-- The scripts of numbers and states stand in front of it.
local FIELDS = 11
-- By the server's own clock, a time that a node read lies up to a round trip before the one the server read for it.
local LATENCY = ARGV[1] == '0' and 1000000 or 0

local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local mode = ARGV[2]
local write, settling, taken = mode ~= '0', mode == '2', now - tonumber(ARGV[3])

local function whole(number) return format(WHOLE, number) end

local function numbers(text)
  local found = {}
  for word in string.gmatch(text, '%d+') do found[#found + 1] = tonumber(word) end
  return found
end

local values = {}  -- by place: the new values that this call has brought so far, and how many

local function read(charge)
  local kind, key = charge.kind, KEYS[charge.key]
  if kind == 'd' then
    local new = values[charge.key] or {count = 0, seen = {}}
    values[charge.key] = new
    local known = new.seen[charge.member] or redis.call('SISMEMBER', key, charge.member)
    return {redis.call('SCARD', key) + new.count, known, 0}
  end
  local text = redis.call('GET', key)
  if kind == 'f' then return {tonumber(text or 0) or 0, 0, 0} end
  if kind == 'a' then return {anchored(text, charge.window, now)} end
  if kind == 's' then return {sliding(text, charge.window, now)} end
  return {bucket(text, charge.limit, charge.window, now)}
end

local function passes(charge, state)
  if charge.limit == 0 then return false end
  local kind, cost = charge.kind, charge.cost
  if cost == 0 then return true end
  if kind == 'd' then return state[2] == 1 or state[1] + cost <= charge.limit end
  if kind == 'f' then return state[1] + cost <= charge.limit end
  if kind == 'a' then return state[2] + cost <= charge.limit end
  if kind == 's' then return state[2] + carried(state[1], state[3], charge.window, now) + cost <= charge.limit end
  return state[2] + cost + (state[3] > 0 and 1 or 0) <= charge.capacity
end

local function take(charge, state)
  local kind, cost = charge.kind, charge.cost
  if kind == 'd' then return (cost == 0 or state[2] == 1) and state or {state[1] + 1, 1, 0} end
  if kind == 'f' then return {math.max(0, state[1] + cost), 0, 0} end
  if kind == 'b' and state[2] + cost < 0 then return {state[1], 0, 0} end
  return {state[1], math.max(0, state[2] + cost), state[3]}
end

local function settle(charge, state)
  if charge.kind == 'a' and taken + LATENCY < state[1] then return state end
  if charge.kind == 's' then
    local number = math.floor(taken / charge.window)
    if number == state[1] - 1 then return {state[1], state[2], math.max(0, state[3] + charge.cost)} end
    if number < state[1] then return state end
  end
  return take(charge, state)
end

local function expiry(charge, state)  -- milliseconds
  local kind = charge.kind
  if kind == 'f' or kind == 'd' then return charge.lifetime end
  if kind == 'b' then return bucket_lifetime(state[1], state[2], charge.limit, charge.window, now) end
  return window_lifetime(kind, state[1], charge.window, now)
end

local exists = {}  -- by place: whether the key is there, with a lifetime

local function save(charge, state)
  local key, kind = KEYS[charge.key], charge.kind
  if kind == 'd' or kind == 'f' then
    if kind == 'd' then redis.call('SADD', key, charge.member) else redis.call('INCRBY', key, whole(state[1] - charge.before[1])) end
    if not exists[charge.key] then redis.call('PEXPIRE', key, charge.lifetime) end
    exists[charge.key] = true
  else
    local text = format(STATE, state[1], state[2], state[3])
    redis.call('SET', key, text, 'PX', expiry(charge, state))
  end
end

local charges, left, every, silent, reply = {}, {}, 1, {}, {1, now}
for i = 1, (#ARGV - 3) / FIELDS do
  local at = 3 + (i - 1) * FIELDS
  local charge = {
    kind = ARGV[at + 1], key = tonumber(ARGV[at + 2]), limit = tonumber(ARGV[at + 3]),
    capacity = tonumber(ARGV[at + 4]), window = tonumber(ARGV[at + 5]), cost = tonumber(ARGV[at + 6]),
    shadow = tonumber(ARGV[at + 7]), lifetime = ARGV[at + 8], ban = tonumber(ARGV[at + 9]), lengths = ARGV[at + 10],
    member = ARGV[at + 11], untl = 0,
  }
  charges[i] = charge
  local known = charge.kind ~= 'd' and left[charge.key]
  charge.before = known or read(charge)
  if write and exists[charge.key] == nil then
    local rest = redis.call('PTTL', KEYS[charge.key])
    -- A key without a lifetime would stay for ever: heal it, even when the call is denied.
    if rest == -1 then redis.call('PEXPIRE', KEYS[charge.key], expiry(charge, charge.before)) end
    exists[charge.key] = rest ~= -2
  end
  if charge.ban > 0 and not settling then
    local ban = numbers(redis.call('GET', KEYS[charge.ban]) or '')  -- since, until, forgotten at, strikes
    charge.strikes = 0
    if ban[1] and now < ban[3] and ban[1] - now <= 60000000 then
      charge.strikes = ban[4]
      if now < ban[2] then charge.untl = ban[2] end
    end
  end
  charge.banned = charge.untl > 0
  charge.passes = settling or (not charge.banned and passes(charge, charge.before))
  if charge.passes then
    charge.after = settling and settle(charge, charge.before) or take(charge, charge.before)
    left[charge.key] = charge.after
    if charge.kind == 'd' and charge.after ~= charge.before then
      local new = values[charge.key]
      new.count, new.seen[charge.member] = new.count + 1, 1
    end
  elseif charge.shadow == 0 then
    every = 0
  else
    silent[charge.shadow] = true
  end
end

if write then
  local untils = {}
  for _, charge in ipairs(charges) do
    if charge.passes then
      local changed = charge.after[1] ~= charge.before[1] or charge.after[2] ~= charge.before[2] or charge.after[3] ~= charge.before[3]
      if every == 1 and changed and not silent[charge.shadow] then save(charge, charge.after) end
    elseif charge.lengths ~= '' and not charge.banned and charge.limit > 0 and charge.cost <= charge.capacity then
      local untl = untils[charge.ban]
      if not untl then
        local lengths, longest = numbers(charge.lengths), 0
        for _, length in ipairs(lengths) do longest = math.max(longest, length) end
        local strikes = charge.strikes + 1
        local length = lengths[math.min(strikes, #lengths)]
        untl = now + length
        untils[charge.ban] = untl
        local kept = length + (#lengths > 1 and longest or 0)
        local text = whole(now) .. ' ' .. whole(untl) .. ' ' .. whole(now + kept) .. ' ' .. whole(strikes)
        redis.call('SET', KEYS[charge.ban], text, 'PX', whole(math.ceil(kept / 1000)))
      end
      charge.untl = untl
      for _, other in ipairs(charges) do
        if other.ban == charge.ban then redis.call('DEL', KEYS[other.key]) end
      end
    end
  end
end

reply[1] = every
for _, charge in ipairs(charges) do
  reply[#reply + 1] = charge.passes and 1 or 0
  reply[#reply + 1] = charge.untl
  for n = 1, 3 do reply[#reply + 1] = charge.before[n] end
end
return reply
