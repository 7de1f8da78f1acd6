"""The arithmetic of each algorithm: pure functions on integers, without a clock and without I/O.

Every module has the same six functions (`Algorithm`) on a state of its own, a short tuple of integers. Stores keep
states; they never look into them. `redis.lua` repeats `current`, `passes`, `take` and `settle` for the server; waits and
figures are worked out here, from the state that the server answers.
"""
