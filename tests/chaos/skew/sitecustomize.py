"""Python reads this when it starts: the wall clock that it shows goes wrong by so many seconds, and no other clock."""

import os
import time

_true_time = time.time
_off_s = float(os.environ["CHAOS_CLOCK_OFF_S"])

time.time = lambda: _true_time() + _off_s
