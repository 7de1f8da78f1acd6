-- A token or leaky bucket's state: time of the last change, units in use, share of one more. See
-- ratelimit/algorithms/token_bucket.py.
local function bucket(text, limit, window, now)  -- the stored state as it stands now
  if not text then return now, 0, 0 end
  local last, units, share = match(text, '(%d+) (%d+) (%d+)')
  if not last then return now, 0, 0 end
  last, units, share = last + 0, units + 0, share + 0
  local elapsed = now - last
  if elapsed <= 0 then
    if elapsed < -60000000 then return now, 0, 0 end
    return last, units, share
  end
  if elapsed / window * limit > units + 2 then return now, 0, 0 end
  local freed, part = muldiv(elapsed, limit, window)
  units, share = units - freed, share - part
  if share < 0 then units, share = units - 1, share + window end
  if units < 0 then return now, 0, 0 end
  return now, units, share
end

local function bucket_lifetime(last, units, limit, window, now)  -- ten years at most, for no window is longer
  -- It only has to outlive the state: rounding up by a unit and a millisecond does no harm.
  local ms = (last - now + (units + 1) * window / (limit > 0 and limit or 1)) / 1000 + 2
  return ms < 316224000000 and ms - ms % 1 or 316224000000
end

