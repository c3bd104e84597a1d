"""Fails or hangs in another way in every attempt: rank 1 does what its arguments name, the others wait for it."""

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class TrainingError(Exception):
    """An exception class of the user's own."""


class Broken(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise ValueError(f"sample {index} is broken")


def raises(error):
    def fail():
        raise error

    return fail


def chained():
    try:
        {}["lr"]
    except KeyError as error:
        raise TrainingError("no learning rate") from error


def recursion():
    recursion()


def loader():
    next(iter(DataLoader(Broken(), num_workers=1)))


def killed_loader():
    batches = DataLoader(range(1000), num_workers=1)
    iterator = iter(batches)
    next(iterator)
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    for _ in iterator:
        pass


def full_disk():
    Path("/dev/full").write_text("x" * 10_000)


def unreachable_store():
    import datetime

    dist.TCPStore("127.0.0.1", 1, is_master=False, timeout=datetime.timedelta(seconds=1))


def send(number):
    return lambda: os.kill(os.getpid(), number)


def sleep():
    time.sleep(3600)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def spin():
    while True:
        pass


def limited(*, warns):
    def spin_to_limit():
        soft = int(time.process_time()) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 60 if warns else soft))
        spin()

    return spin_to_limit


def lock_in_c():
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):  # the second call waits for ever and holds the GIL; a signal does not end it
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


def skip_collective():
    dist.recv(torch.ones(1), src=0)  # nobody sends


def dead_loader():
    batches = iter(DataLoader(range(1000), num_workers=1))
    next(batches)
    os.kill(batches._workers[0].pid, signal.SIGSTOP)
    for _ in batches:
        pass


def slow():
    """No hang: output shows life while a step takes longer than the limit."""
    for second in range(5):
        print("working", second)
        time.sleep(1)


HANGS = (sleep, stop, spin, lock_in_c, skip_collective, dead_loader, slow)
FAILURES = {
    **{hang.__name__: hang for hang in HANGS},
    "value": raises(ValueError("bad value")),
    "key": raises(KeyError("weights")),
    "zero": lambda: 1 / 0,
    "assert": raises(AssertionError("loss went up")),
    "shape": lambda: torch.ones(2, 3) @ torch.ones(2, 3),
    "type": lambda: torch.ones("three"),
    "index": lambda: [][3],
    "attribute": lambda: torch.no_such_thing,
    "name": lambda: undefined_name,  # noqa: F821
    "file": lambda: Path("no/such/file").read_text(),
    "permission": raises(PermissionError(errno.EACCES, "Permission denied", "/data")),
    "own class": raises(TrainingError("diverged")),
    "chained": chained,
    "group": raises(ExceptionGroup("several", [ValueError("one"), TypeError("two")])),
    "recursion": recursion,
    "not implemented": raises(NotImplementedError("later")),
    "stop iteration": raises(StopIteration()),
    "unicode": lambda: b"\xff\xfe".decode(),
    "json": lambda: json.loads("{"),
    "long message": raises(ValueError("x" * 100_000)),
    "no message": raises(RuntimeError()),
    "two lines": raises(RuntimeError("first line\nsecond line")),
    "hostile": raises(ValueError("\x1b[31m<script>alert(1)</script>\x00")),
    "keyboard": raises(KeyboardInterrupt()),
    "loader": loader,
    "killed loader": killed_loader,
    "exit 3": lambda: sys.exit(3),
    "exit text": lambda: sys.exit("nothing to train"),
    "_exit 7": lambda: os._exit(7),
    "_exit 0": lambda: os._exit(0),
    "memory": raises(MemoryError()),
    "cpu allocation": lambda: torch.empty(10**15),
    "cuda memory": raises(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")),
    "SIGKILL": send(signal.SIGKILL),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "SIGABRT": os.abort,
    "SIGBUS": send(signal.SIGBUS),
    "SIGFPE": send(signal.SIGFPE),
    "SIGILL": send(signal.SIGILL),
    "SIGHUP": send(signal.SIGHUP),
    "SIGTERM": send(signal.SIGTERM),
    "SIGXCPU": limited(warns=True),
    "processor time": limited(warns=False),
    "disk full": full_disk,
    "quota": raises(OSError(errno.EDQUOT, "Disk quota exceeded")),
    "store": unreachable_store,
}


def main():
    dist.init_process_group("gloo")
    attempt = int(os.environ["REKINDLE_ATTEMPT"])
    names = sys.argv[1:]
    Path(os.environ["REKINDLE_SNAPSHOT_DIR"], f"progress-{attempt}").touch()  # each failure is the first since progress
    for step in range(5):
        dist.all_reduce(torch.ones(1))
        print("step", step)
    if attempt <= len(names) and dist.get_rank() == 1:
        FAILURES[names[attempt - 1]]()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
