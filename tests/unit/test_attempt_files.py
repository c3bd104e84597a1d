"""Which ranks torchrun has stopped, according to its own output."""

from pathlib import Path

from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.keeper.attempt_result import stopped_by_torchrun

_LINE = (
    "W1121 16:08:32.022000 12224 torch/distributed/elastic/multiprocessing/api.py:871] Closing process {} via signal "
    "SIGTERM\n"
)


def test_each_of_many_ranks_that_torchrun_has_stopped_is_known(tmp_path: Path) -> None:
    log, ranks = AttemptDir(tmp_path).agent_log, range(1000, 1256)
    assert not stopped_by_torchrun(log, 1000), "there is no output"
    log.write_text("".join(_LINE.format(pid) for pid in ranks))
    assert all(stopped_by_torchrun(log, pid) for pid in ranks)
    assert not stopped_by_torchrun(log, 100), "a part of another's number"
