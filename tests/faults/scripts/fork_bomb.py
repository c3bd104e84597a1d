"""Every process of it begins the next one and ends: none of them is there for long."""

import os
import time

print("step 1", flush=True)
while True:
    if os.fork() == 0:
        os.setsid()
    else:
        time.sleep(0.01)
        os._exit(0)
