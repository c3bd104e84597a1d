"""What kind of failure an exception of a rank is: by its name and text, since torch has one class for most. Pure."""

import errno
import re
from dataclasses import dataclass

from rekindle.contract.nvidia_driver import HARDWARE_XIDS
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.rank_records import RankError

_COMM = re.compile(
    r"connectFullMesh|\[gloo|gloo/transport|NCCL|ncclRemoteError|DistBackendError|DistNetworkError|DistStoreError"
    r"|recvValue failed",
    re.IGNORECASE,
)
_CONNECTION = re.compile(r"connection (reset|closed|refused)|broken pipe|Socket Timeout", re.IGNORECASE)
_WATCHDOG = re.compile(
    r".*(Watchdog caught (?P<timeout>collective operation timeout)|Aborting process on rank \d+ due to"
    r"|(?P<stuck>watchdog got stuck) for|Process group watchdog thread terminated with exception"
    r"|taking the entire process down).*"
)
"""Matches what NCCL's backends of torch 2.11 to 2.15 write before they abort a rank, mostly one that only waits."""
_WATCHDOG_SECONDS = re.compile(r"ran for (\d{1,12}) milliseconds")
_GLOO_TIMEOUT = re.compile(r".*Timed out waiting (\d{1,12})ms for (?:send|recv) operation.*")
_MEMORY_ERRORS = {"MemoryError", "OutOfMemoryError"}
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|STATUS_\w*ALLOC\w*_FAILED", re.IGNORECASE)
_FOLLOWED = re.compile(
    r"^(torch\.|torch\.cuda\.)?(MemoryError|OutOfMemoryError)\b.*\n\n(During handling of|The above exception was)",
    re.MULTILINE,
)
"""Matches a traceback of another exception while memory had run out, or since."""
_DISK_FULL = re.compile(rf"\[Errno ({errno.ENOSPC}|{errno.EDQUOT})\]|No space left on device")


@dataclass(frozen=True, slots=True)
class DeviceError:
    """An error of GPUs or their communication whose text shows what to do about it."""

    pattern: re.Pattern[str]
    klass: OutcomeClass
    advice: str
    is_hardware: bool = False  # so it does not count against the script


def _device_error(pattern: str, klass: OutcomeClass, advice: str, *, is_hardware: bool = False) -> DeviceError:
    return DeviceError(re.compile(pattern, re.IGNORECASE), klass, advice, is_hardware)


_CUDA = r"(CUDA error[^:\n]*: |Cuda failure (\d+ )?')"  # as torch writes it, and as NCCL does
_DEVICE_ERRORS = (
    _device_error(
        r"uncorrectable (ECC|NVLink)|ECC error|(device|GPU) (has been|is) lost|fallen off the bus|hardware stack error"
        r"|NVLink error|peer GPU memory over nvlink or a hardware error",
        OutcomeClass.COMM,
        "This is a hardware error of the GPU, not the script's: it does not count as a failure. If it comes again, "
        "exclude the GPU and have it checked (`nvidia-smi -q -d ECC,ROW_REMAPPER`, the kernel's log).",
        is_hardware=True,
    ),
    _device_error(
        rf"device-side assert(?!ion)|{_CUDA}(an illegal (memory access|instruction)|misaligned address"
        r"|unspecified launch failure|invalid (program counter|device function)"
        r"|operation not supported on global/shared address space)",
        OutcomeClass.USER_ERROR,
        "The script caused it, not the GPU (an index or a label out of range, as a rule), and not necessarily at this "
        "line: run once with CUDA_LAUNCH_BLOCKING=1 to see where.",
    ),
    _device_error(
        r"driver version is insufficient|NVIDIA driver on your system is too old|no kernel image is available"
        r"|unsupported display driver|forward compatibility was attempted",
        OutcomeClass.USER_ERROR,
        "The installed torch does not fit this machine's driver or GPU (`rekindle doctor` shows the versions): install "
        "a newer driver, or a torch that was built for this one.",
    ),
    _device_error(
        r"no CUDA-capable device|No CUDA GPUs are available|no GPUs found|Found no NVIDIA driver|invalid device ordinal"
        r"|not compiled with CUDA|CUDA driver initialization failed",
        OutcomeClass.USER_ERROR,
        "The rank sees no such CUDA device: submit with `--device cuda` and as many ranks as GPUs, or use `gloo` and "
        "the CPU in the script.",
    ),
    _device_error(
        r"CUDA-capable devices? ?(\(s\) is/are|are) busy",
        OutcomeClass.COMM,
        "Another process has the GPU, whose compute mode allows only one (`nvidia-smi -q -d COMPUTE`); "
        "`rekindle devices` shows who uses it.",
    ),
    _device_error(
        rf"{_CUDA}initialization error|Cannot re-initialize CUDA in forked subprocess",
        OutcomeClass.USER_ERROR,
        "The script has forked a process after it had used CUDA: start that one by `spawn`, such as a DataLoader's "
        "workers by multiprocessing_context='spawn'.",
    ),
    _device_error(
        rf"{_CUDA}system not yet initialized",
        OutcomeClass.COMM,
        "The service that connects the GPUs of this machine does not run: `systemctl status nvidia-fabricmanager`.",
    ),
    _device_error(
        rf"{_CUDA}the launch timed out",
        OutcomeClass.USER_ERROR,
        "The driver ends long kernels on a GPU that also shows a screen: use another GPU, or shorter kernels.",
    ),
    _device_error(
        r"(CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_|cuDNN error|cuFFT error",
        OutcomeClass.USER_ERROR,
        "A library of CUDA has refused a call, often since a kernel before it failed: run once with "
        "CUDA_LAUNCH_BLOCKING=1. If it remains, memory is short, or the versions do not fit (`rekindle doctor`).",
    ),
    _device_error(
        r"shared memory (segment|file) /dev/shm",
        OutcomeClass.DISK_FULL,
        "NCCL needs room in /dev/shm: `df /dev/shm`; in a container, start it with a larger --shm-size.",
    ),
    _device_error(
        r"message truncated *: receiv",
        OutcomeClass.USER_ERROR,
        "The ranks called collectives of different sizes: all must call the same ones with the same shapes, in the "
        "same order.",
    ),
    _device_error(
        r"ncclInvalidUsage|ncclInvalidArgument|Duplicate GPU detected",
        OutcomeClass.USER_ERROR,
        "NCCL was called wrongly by the script: call torch.cuda.set_device(LOCAL_RANK) before init_process_group, so "
        "that each rank has a GPU of its own.",
    ),
    _device_error(
        r"ncclSystemError",
        OutcomeClass.COMM,
        "A system call of NCCL failed: check room in /dev/shm, the limits of open files and locked memory, and the "
        "network interface (NCCL_SOCKET_IFNAME); NCCL_DEBUG=WARN prints which call it was.",
    ),
    _device_error(
        rf"ncclUnhandledCudaError|ncclInternalError|{_CUDA}unknown error",
        OutcomeClass.COMM,
        "NCCL_DEBUG=WARN prints which call failed; an Xid in the kernel's log would show that the GPU did.",
    ),
)  # fmt: skip

_RECOVERED = re.compile(r"recovery action changed from .* to \S+ \(None\)")
_XID = re.compile(r"NVRM: Xid \((?P<gpu>[^)]*)\): (?P<number>\d+)(, pid='?(?P<pid>\d+))?")


def class_of(error: RankError) -> OutcomeClass:
    """The class of an attempt that this exception has ended."""
    if error.exception in _MEMORY_ERRORS or _OUT_OF_MEMORY.search(error.message) or _FOLLOWED.search(error.traceback):
        return OutcomeClass.OOM
    if _DISK_FULL.search(error.message):
        return OutcomeClass.DISK_FULL
    if error.exception == "ResultNotStoredError":  # rekindle's own, as the next
        return OutcomeClass.DISK_FULL
    if error.exception == "NonFiniteError":
        return OutcomeClass.NAN
    if error.exception in ("DivergenceError", "DivergenceRollback"):
        return OutcomeClass.DIVERGENCE
    if (device := device_error(error)) is not None:
        return device.klass
    return OutcomeClass.COMM if is_comm_error(error) else OutcomeClass.USER_ERROR


def is_comm_error(error: RankError) -> bool:
    """True where a collective or the rendezvous failed, as it does when another rank has gone.

    A general connection error counts only from inside torch.distributed: a data loader whose worker was killed raises
    it too, and a download that is refused.
    """
    text = f"{error.exception}: {error.message}"
    lost = bool(_COMM.search(text) or ("torch/distributed" in error.traceback and _CONNECTION.search(text)))
    is_short = _OUT_OF_MEMORY.search(error.message) or _DISK_FULL.search(error.message)
    return lost and not is_short and device_error(error) is None


def hidden_cause(error: RankError) -> RankError | None:
    """The script's own exception that was being handled when the communication failed, as in a ``finally``."""
    cause = error.context if is_comm_error(error) else None
    while cause is not None and is_comm_error(cause):
        cause = cause.context
    return None if cause is None or cause.file is None or cause.file.startswith("/") else cause


@dataclass(frozen=True, slots=True)
class WatchdogReport:
    """What NCCL's watchdog has found before it ended a rank, or a collective of gloo that took too long."""

    line: str
    is_timeout: bool  # a collective that took too long; else an error, mostly that a peer had gone
    seconds: float | None = None  # how long the collective took
    library: str = "NCCL"


def watchdog_report(text: str) -> WatchdogReport | None:
    """Find a watchdog's report in the output or the exception of a rank; None where there is none."""
    found = list(_WATCHDOG.finditer(text))
    timeouts = [match for match in found if match["timeout"] or match["stuck"] or "timed out" in match[0].lower()]
    if not found:
        return None
    line = (timeouts or found)[0][0].strip()
    seconds = _WATCHDOG_SECONDS.search(line)
    return WatchdogReport(line[:500], bool(timeouts), None if seconds is None else int(seconds[1]) / 1000)


def gloo_timeout(message: str) -> WatchdogReport | None:
    """The timeout that the exception of a collective of gloo reports; None for another exception."""
    match = _GLOO_TIMEOUT.search(message)
    return None if match is None else WatchdogReport(match[0][:500], True, int(match[1]) / 1000, "gloo")


def device_error(error: RankError) -> DeviceError | None:
    """What is known about an error of a GPU or of NCCL itself; None for all others."""
    return None if error.exit_code is not None else device_error_in(error.message)


def device_error_in(text: str) -> DeviceError | None:
    return next((each for each in _DEVICE_ERRORS if each.pattern.search(text)), None)


def hardware_xid(kernel_log: list[str], pids: set[int]) -> str | None:
    """The first message of NVIDIA's driver about failed hardware that may concern one of ``pids``.

    It names no process where the GPU is gone altogether.
    """
    for line in kernel_log:
        match = _XID.search(line)
        if match is None or int(match["number"]) not in HARDWARE_XIDS or _RECOVERED.search(line):
            continue
        if match["pid"] is None or int(match["pid"]) in pids:
            return line[match.start() :].strip()
    return None
