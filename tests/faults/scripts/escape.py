"""Leaves processes behind in every way there is: a session of its own, a double fork, an ignored SIGTERM, a spawn."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time


def daemon():
    """The classic: fork, setsid, fork, and nobody's child any more."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.closerange(3, 64)
            time.sleep(600)
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    daemon()
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,)).start()
    print("step 1", flush=True)
    if sys.argv[1] == "end":
        os._exit(0)
    time.sleep(600)
