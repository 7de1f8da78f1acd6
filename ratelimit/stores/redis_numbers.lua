-- Whole numbers, for the scripts that this one stands in front of.
-- They are below 2^53, which Lua's numbers hold exactly; products that could be larger go through muldiv. Times are in
-- microseconds, lifetimes in milliseconds.
-- Every run of a script makes its functions anew, with what they keep from outside. That costs time in every check: so there
-- are few of them, and constants are written out where they are needed: 60000000 is MAX_SKEW_US of ratelimit/outcome.py.
local format, match = string.format, string.match
local WHOLE, STATE = '%d', '%d %d %d'
-- "%d" is twice as fast, but on some machines holds 32 bits only.
if format(WHOLE, 1099511627776) ~= '1099511627776' then WHOLE, STATE = '%.0f', '%.0f %.0f %.0f' end

local function muldiv(a, b, d)  -- quotient and remainder of a * b / d, exact for b < 2^48 and d < 2^49
  local product = a * b
  if product < 9007199254740992 then  -- 2^53: then the division never rounds up to a whole number
    local rest = product % d
    return (product - rest) / d, rest
  end
  local floor = math.floor
  local times = floor(a / d)
  local part, q, r = a - times * d, 0, 0
  for place = 15, 0, -1 do  -- three bits of b at a time
    local rest = r * 8 + floor(b / 8 ^ place) % 8 * part
    local more = floor(rest / d)
    q, r = q * 8 + more, rest - more * d
  end
  return times * b + q, r
end

