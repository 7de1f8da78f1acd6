-- Whole numbers, for the scripts that this one stands in front of.
-- They are below 2^53, which Lua's numbers hold exactly; products that could be larger go through muldiv. Times are in
-- microseconds, lifetimes in milliseconds.
local SKEW, EXACT = 60000000, 9007199254740992
local LONGEST = 316224000000  -- ten years in milliseconds, the longest that a window may last
-- "%d" is twice as fast, but on some machines holds 32 bits only.
local WHOLE = string.format('%d', 1099511627776) == '1099511627776' and '%d' or '%.0f'
local STATE, NUMBERS = WHOLE .. ' ' .. WHOLE .. ' ' .. WHOLE, '(%d+) (%d+) (%d+)'

local function quotient(a, b)  -- of whole numbers; below 2^53 the division never rounds up to one
  local q = math.floor(a / b)
  return q, a - q * b
end

local function muldiv(a, b, d)  -- quotient and remainder of a * b / d, exact for b < 2^48 and d < 2^49
  if a * b < EXACT then return quotient(a * b, d) end
  local times, part = quotient(a, d)
  local q, r = 0, 0
  for place = 15, 0, -1 do  -- three bits of b at a time
    local bits = math.floor(b / 8 ^ place) % 8
    local more, rest = quotient(r * 8 + bits * part, d)
    q, r = q * 8 + more, rest
  end
  return times * b + q, r
end

