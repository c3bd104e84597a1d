"""kill -9 of one rank, and of nothing else."""

import os
import signal

from rekindle.contract.files import read_json
from rekindle.contract.processes import ProcessIdentity, boot_id
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import RankStatus


def kill_rank(rank_dir: RankDir, pid: int) -> bool:
    """SIGKILL the process that wrote ``rank_dir``, if it is ``pid`` and still runs; False when it does not.

    The handle is taken first and the identity checked through it afterwards: were the pid reused in between, the
    start time would differ, and once the handle is held the kernel cannot give it to another process.
    """
    value = read_json(rank_dir.status)
    if value is None:
        return False
    status = RankStatus.from_json(value)
    if status.pid != pid:
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not ProcessIdentity(status.pid, status.start_time, boot_id()).alive():
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
