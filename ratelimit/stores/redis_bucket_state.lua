-- A token or leaky bucket's state: time of the last change, units in use, share of one more. See
-- ratelimit/algorithms/token_bucket.py.
local function bucket(text, limit, window, now)  -- the stored state as it stands now
  local last, units, share = string.match(text or '', NUMBERS)
  if not last then return now, 0, 0 end
  last, units, share = tonumber(last), tonumber(units), tonumber(share)
  local elapsed = now - last
  if elapsed <= 0 then
    if elapsed < -SKEW then return now, 0, 0 end
    return last, units, share
  end
  if elapsed / window * limit > units + 2 then return now, 0, 0 end
  local freed, part = muldiv(elapsed, limit, window)
  units, share = units - freed, share - part
  if share < 0 then units, share = units - 1, share + window end
  if units < 0 then return now, 0, 0 end
  return now, units, share
end

local function bucket_lifetime(last, units, limit, window, now)
  -- It only has to outlive the state: rounding up by a unit does no harm.
  local us = last - now + (units + 1) * window / math.max(1, limit)
  return string.format(WHOLE, math.min(math.ceil(us / 1000) + 1, LONGEST))
end

