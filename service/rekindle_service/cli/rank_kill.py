"""kill -9 of one rank, and of nothing else."""

import signal

from rekindle.contract.files import read_json
from rekindle.contract.processes import ProcessIdentity, boot_id
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import RankStatus


def kill_rank(rank_dir: RankDir, pid: int) -> bool:
    """SIGKILL the process that wrote ``rank_dir``, if it is ``pid`` and still runs; False when it does not."""
    value = read_json(rank_dir.status)
    if value is None:
        return False
    status = RankStatus.from_json(value)
    if status.pid != pid:
        return False
    return ProcessIdentity(pid, status.start_time, boot_id()).send_signal(signal.SIGKILL)
