"""The process of a rank, set up for its script: its output, its multiprocessing, its cores and its share of a GPU."""

import ctypes
import gc
import io
import multiprocessing
import os
import sys
from contextlib import suppress
from multiprocessing import process
from pathlib import Path
from typing import Any

from rekindle.contract.cores import cores_of_rank
from rekindle.contract.environment import GPU_SHARE, RankEnv
from rekindle.contract.files import NO_SPACE_ERRNOS
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.paths import RankDir

_PIECE = 1 << 20  # bytes
_MAIN = multiprocessing.current_process()  # the warm agent has imported this module before it forks


_STREAMS = ((1, "stdout"), (2, "stderr"))


def capture_output(rank_dir: RankDir | None) -> None:
    """Point file descriptors 1 and 2, and ``sys.stdout`` and ``sys.stderr`` on them, at the rank's log files.

    Without ``rank_dir`` they collect in memory what ``move_output`` writes there.
    """
    for fd, stream in _STREAMS:
        file = os.memfd_create(stream) if rank_dir is None else _open_log(rank_dir, stream)
        os.dup2(file, fd)
        os.close(file)
    errors = "strict" if sys.__stdout__ is None else sys.__stdout__.errors  # another where no locale is set
    sys.stdout = sys.__stdout__ = _unbuffered(1, errors)  # type: ignore[misc]  # as the interpreter starts
    sys.stderr = sys.__stderr__ = _unbuffered(2, "backslashreplace")  # type: ignore[misc]  # as above


def move_output(rank_dir: RankDir) -> None:
    """Continue in the rank's log files what was collected in memory; the objects on it stay, as a script has them."""
    for fd, stream in _STREAMS:
        log, size = _open_log(rank_dir, stream), os.fstat(fd).st_size
        for begin in range(0, size, _PIECE):
            os.write(log, os.pread(fd, min(_PIECE, size - begin), begin))
        os.dup2(log, fd)
        os.close(log)


def _open_log(rank_dir: RankDir, stream: str) -> int:
    return os.open(rank_dir.log(stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def flush_open_files() -> None:
    """Flush every file that is still open, the upper layers of each first, and then those of C libraries.

    An interpreter does so at its end, a forked process that exits does not.
    """
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, io.IOBase)}
    for file in sorted((each for each in objects if type(each) in kinds), key=_layer):
        with suppress(Exception):  # it is closed, or cannot be written to: an interpreter reports nothing either
            file.flush()
    ctypes.CDLL(None).fflush(None)


class _Log(io.FileIO):
    """A log that drops and counts what does not fit on a full disk: no training must end for a line of its log."""

    _dropped = 0  # bytes

    def write(self, data: Any, /) -> int:
        try:
            if self._dropped:
                super().write(f"[rekindle: the disk was full, {self._dropped} bytes are missing here]\n".encode())
                self._dropped = 0
            return super().write(data)
        except OSError as error:
            if error.errno not in NO_SPACE_ERRNOS:
                raise
            size = memoryview(data).nbytes
            self._dropped += size
            return size


def _unbuffered(fd: int, errors: str | None) -> io.TextIOWrapper:
    """Open ``fd`` for text as ``python -u`` would."""
    raw = _Log(fd, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)


def _layer(file: io.IOBase) -> int:
    """Sort key of layers: text is on top of what turns it into other bytes (gzip), and that on top of a buffer."""
    if isinstance(file, io.TextIOBase):
        return 0
    return 2 if isinstance(file, io.BufferedWriter | io.BufferedRandom) else 1


def reset_multiprocessing() -> None:
    """Undo what multiprocessing has set in this process, by which torchrun forks ranks from a warm agent.

    Else a script could not choose its start method, and libraries would take the main process for a worker. numpy's
    generator gets a new seed, or every rank of every attempt would draw the same numbers.
    """
    multiprocessing.set_start_method(None, force=True)
    process._current_process = _MAIN  # type: ignore[attr-defined]  # there is no public way
    process._parent_process = None  # type: ignore[attr-defined]  # as above
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


def bind_to_cores(env: RankEnv) -> None:
    """Run on the cores near the GPU, or on those of the CPU slot, by the server's setting `affinity`.

    A number of threads that torch has chosen for more cores is reduced to theirs; one that the job sets stays.
    """
    usable = os.sched_getaffinity(0)
    cores = cores_of_rank(os.environ, env.local_rank, env.devices_per_rank, usable)
    if not cores or cores == usable:
        return
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # one that has ended, or a container that forbids it
            os.sched_setaffinity(int(thread.name), cores)
    torch = sys.modules.get("torch")
    if torch is not None and "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > len(cores):
        torch.set_num_threads(len(cores))


def announce_share(spec: JobSpec) -> None:
    """Set in the environment which share of the memory of its GPUs a script may use. Nothing enforces it."""
    if spec.gpu_share < 1:
        os.environ[GPU_SHARE] = f"{spec.gpu_share:g}"
