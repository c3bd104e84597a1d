"""What kind of failure an exception of a rank is: by its name and text, since torch has one class for most. Pure."""

import errno
import re
from dataclasses import dataclass

from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.rank_records import RankError

_COMM = re.compile(
    r"connectFullMesh|\[gloo|gloo/transport|NCCL|ncclRemoteError|DistBackendError|DistNetworkError|DistStoreError"
    r"|recvValue failed",
    re.IGNORECASE,
)
_CONNECTION = re.compile(r"connection (reset|closed|refused)|broken pipe|Socket Timeout", re.IGNORECASE)
_MEMORY_ERRORS = {"MemoryError", "OutOfMemoryError"}
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
_DISK_FULL = re.compile(rf"\[Errno ({errno.ENOSPC}|{errno.EDQUOT})\]|No space left on device")


@dataclass(frozen=True, slots=True)
class DeviceError:
    """An error of GPUs or their communication whose text tells what to do about it."""

    pattern: re.Pattern[str]
    klass: OutcomeClass
    advice: str
    is_hardware: bool = False  # so it does not count against the script


def _device_error(pattern: str, klass: OutcomeClass, advice: str, *, is_hardware: bool = False) -> DeviceError:
    return DeviceError(re.compile(pattern, re.IGNORECASE), klass, advice, is_hardware)


_DEVICE_ERRORS = (
    _device_error(
        r"device-side assert|CUDA error: (an illegal memory access|misaligned address|invalid (program counter|device "
        r"function))",
        OutcomeClass.USER_ERROR,
        "The script caused it, not the GPU (an index or a label out of range, as a rule), and not necessarily at this "
        "line: run once with CUDA_LAUNCH_BLOCKING=1 to see where.",
    ),
    _device_error(
        r"uncorrectable (ECC|NVLink)|ECC error|(device|GPU) (has been|is) lost|fallen off the bus|hardware stack error"
        r"|NVLink error",
        OutcomeClass.COMM,
        "This is a hardware error of the GPU, not the script's: it does not count as a failure. If it comes again, "
        "exclude the GPU and have it checked (`nvidia-smi -q -d ECC,ROW_REMAPPER`, the kernel's log).",
        is_hardware=True,
    ),
    _device_error(
        r"no CUDA-capable device|No CUDA GPUs are available|no GPUs found|Found no NVIDIA driver|invalid device ordinal"
        r"|not compiled with CUDA|CUDA driver initialization failed",
        OutcomeClass.USER_ERROR,
        "The rank sees no such CUDA device: submit with `--device cuda` and as many ranks as GPUs, or use `gloo` and "
        "the CPU in the script.",
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
        r"ncclUnhandledCudaError|ncclInternalError|CUDA error: (unknown error|all CUDA-capable devices are busy|system "
        r"not yet initialized)",
        OutcomeClass.COMM,
        "The GPU or its driver failed, not the script: see the kernel's log for Xid messages, and `nvidia-smi`.",
        is_hardware=True,
    ),
)  # fmt: skip
HARDWARE_XIDS = {48, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 121, 136, 140, 143, 154}
"""Of NVIDIA's list: memory that cannot be corrected, NVLink, a GPU off the bus, its own controller."""

_XID = re.compile(r"NVRM: Xid \((?P<gpu>[^)]*)\): (?P<number>\d+)(, pid='?(?P<pid>\d+))?")


def class_of(error: RankError) -> OutcomeClass:
    """The class of an attempt that this exception has ended."""
    if error.exception in _MEMORY_ERRORS or _OUT_OF_MEMORY.search(error.message):
        return OutcomeClass.OOM
    if _DISK_FULL.search(error.message):
        return OutcomeClass.DISK_FULL
    if error.exception == "ResultNotStoredError":  # rekindle's own, as the next
        return OutcomeClass.DISK_FULL
    if error.exception == "NonFiniteError":
        return OutcomeClass.NAN
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
    return lost and device_error(error) is None


def device_error(error: RankError) -> DeviceError | None:
    """What is known about an error of a GPU or of NCCL itself; None for all others."""
    if error.exit_code is not None:
        return None
    return next((each for each in _DEVICE_ERRORS if each.pattern.search(error.message)), None)


def hardware_xid(kernel_log: list[str], pids: set[int]) -> str | None:
    """The first message of NVIDIA's driver about failed hardware that may concern one of ``pids``.

    It names no process where the GPU is gone altogether.
    """
    for line in kernel_log:
        match = _XID.search(line)
        if match is not None and int(match["number"]) in HARDWARE_XIDS and (
            match["pid"] is None or int(match["pid"]) in pids
        ):  # fmt: skip
            return line[match.start() :].strip()
    return None
