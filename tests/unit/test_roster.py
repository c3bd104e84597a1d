"""The ranks of an attempt, as the keeper ends them."""

import signal
import subprocess
import sys
from pathlib import Path

from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.keeper.facts import RankFacts
from rekindle.keeper.roster import Roster, ask_for_stacks


def rank_of(process: subprocess.Popen[bytes]) -> RankFacts:
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    return RankFacts(0, 0, identity.pid, identity.start_time)


def test_a_rank_that_the_keeper_has_killed_stays_so_when_it_is_killed_again_before_its_end_is_heard(
    tmp_path: Path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        rank, roster = rank_of(process), Roster(AttemptDir(tmp_path), world_size=1)
        roster.add(rank)
        roster.kill(rank)
        process.wait()
        roster.kill(rank)
        roster.note_death(process.pid)
    assert rank.killed
    assert not roster.failed(), "its end tells nothing about a cause"


def test_nobody_is_asked_for_stacks_who_would_die_of_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        ask_for_stacks(rank_of(process))
        process.communicate(b"end\n")
    assert process.returncode == 0, signal.strsignal(-process.returncode)
