-- The states of windows other than clock-aligned ones. See ratelimit/algorithms/anchored_window.py and sliding_window.py.
local function anchored(text, window, now)  -- beginning and units used, as they stand now
  local begin, used = match(text or '', '(%d+) (%d+)')
  if not begin then return now, 0, 0 end
  begin, used = begin + 0, used + 0
  if now < begin + window and begin - now <= 60000000 then return begin, used, 0 end
  return now, 0, 0
end

local function sliding(text, window, now)  -- the window's number, its units and those of the one before, as they stand now
  local number, units, previous = match(text or '', '(%d+) (%d+) (%d+)')
  local current = (now - now % window) / window
  if not number then return current, 0, 0 end
  number, units, previous = number + 0, units + 0, previous + 0
  if number * window - now > 60000000 or number < current - 1 then return current, 0, 0 end
  if number == current - 1 then return current, 0, units end
  return number, units, previous
end

local function carried(number, previous, window, now)  -- what still counts of the window before, rounded up
  local left = (number + 1) * window - now
  local units, part = muldiv(left < window and left or window, previous, window)
  return part > 0 and units + 1 or units
end

local function window_lifetime(kind, first, window, now)  -- ten years at most, for no window is longer
  local ms = ((kind == 'a' and first + window or (first + 2) * window) - now) / 1000 + 2
  return ms < 316224000000 and ms - ms % 1 or 316224000000
end

