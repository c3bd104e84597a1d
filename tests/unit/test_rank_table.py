"""The ranks of an attempt, as the keeper ends them."""

import signal
import subprocess
import sys
from pathlib import Path

from rekindle.contract.files import write_json
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.contract.run_dir.rank_records import RankDone
from rekindle.keeper.attempt_result import RankResult
from rekindle.keeper.rank_processes.table import RankTable, request_stacks


def rank_of(process: subprocess.Popen[bytes]) -> RankResult:
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    return RankResult(0, identity.pid, identity.start_time)


def test_a_rank_that_the_keeper_has_killed_stays_so_when_it_is_killed_again_before_its_end_is_known(
    tmp_path: Path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        rank, table = rank_of(process), RankTable(AttemptDir(tmp_path), world_size=1)
        table.add(rank)
        table.kill_unfinished()
        process.wait()
        table.kill_unfinished()
        table.record_death(process.pid)
    assert rank.killed
    assert not table.failed(), "its end is no evidence of a cause"


def test_a_rank_whose_last_message_did_not_arrive_is_done_by_its_marker(tmp_path: Path) -> None:
    attempt_dir = AttemptDir(tmp_path)
    table = RankTable(attempt_dir, world_size=1)
    table.add(RankResult(0, pid=1, start_time=0))
    attempt_dir.rank(0).root.mkdir(parents=True)
    write_json(attempt_dir.rank(0).done, RankDone(0, drained=False, step=None, at=1.0).to_json())
    table.refresh_all()
    assert table.all(lambda rank: rank.done)


def test_no_stack_is_requested_of_a_process_that_would_die_of_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        request_stacks(rank_of(process))
        process.communicate(b"end\n")
    assert process.returncode == 0, signal.strsignal(-process.returncode)
