"""Python reads this at start: the wall clock is wrong by a number of seconds, and no other clock is."""

import os
import time

_true_time = time.time
_off_s = float(os.environ["CHAOS_CLOCK_OFF_S"])

time.time = lambda: _true_time() + _off_s
