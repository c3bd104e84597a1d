"""Ends well, or with an argument badly, and leaves an exit function that waits for ever."""

import atexit
import sys
import time

from rekindle.rank import wrapper

wrapper.EXIT_LIMIT = 6.0  # this process runs it
atexit.register(time.sleep, 3600)
print("step 1", flush=True)
if sys.argv[1:]:
    raise ValueError("planted")
