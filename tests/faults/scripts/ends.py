"""All that a script may do at its end, each thing leaving a line: threads, exit functions, forks, workers, __main__."""

import atexit
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor


class OfMain:
    """Is pickled by name: only a process that finds this class in ``__main__`` can read it."""

    def __init__(self, number):
        self.number = number


def double(of_main):
    return OfMain(2 * of_main.number)


def say(text):
    print(text, flush=True)


def slow():
    time.sleep(0.5)
    say("thread ended")


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    with ProcessPoolExecutor(1) as pool:
        say(f"doubled {pool.submit(double, OfMain(21)).result().number}")
    atexit.register(say, "exit function ran")
    threading.Thread(target=slow).start()
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    child = os.fork()
    if child == 0:
        say("child falls off the end")
    else:
        _, status = os.waitpid(child, 0)
        say(f"child ended with {os.waitstatus_to_exitcode(status)}")
        if sys.argv[1:] in (["fail"], ["fail", os.environ["RANK"]]):
            sys.exit("with words")
        if sys.argv[1:2] == ["fail"]:
            time.sleep(600)  # until torchrun ends this rank, since another one fails
