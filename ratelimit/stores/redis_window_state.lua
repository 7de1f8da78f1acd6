-- The states of windows other than clock-aligned ones. See ratelimit/algorithms/anchored_window.py and sliding_window.py.
local function anchored(text, window, now)  -- beginning and units used, as they stand now
  local begin, used = string.match(text or '', NUMBERS)
  begin, used = tonumber(begin), tonumber(used)
  if begin and now < begin + window and begin - now <= SKEW then return begin, used, 0 end
  return now, 0, 0
end

local function sliding(text, window, now)  -- the window's number, its units and those of the one before, as they stand now
  local number, units, previous = string.match(text or '', NUMBERS)
  number, units, previous = tonumber(number), tonumber(units), tonumber(previous)
  local current = math.floor(now / window)
  if not number or number * window - now > SKEW or number < current - 1 then return current, 0, 0 end
  if number == current - 1 then return current, 0, units end
  return number, units, previous
end

local function carried(number, previous, window, now)  -- what still counts of the window before, rounded up
  local units, part = muldiv(math.min(window, (number + 1) * window - now), previous, window)
  return part > 0 and units + 1 or units
end

local function window_lifetime(kind, first, window, now)
  local us = (kind == 'a' and first + window or (first + 2) * window) - now
  return string.format(WHOLE, math.min(math.ceil(us / 1000) + 1, LONGEST))
end

