"""A script that prints without end fills no disk."""

import os

from e2e.waiting import until
from rekindle.contract.job_options import LaunchMode

LIMIT = 4 << 20
LINE = b"a line that is repeated by far too often\n"
PRINTED = len(LINE) * 25_000 * 40


def test_the_logs_of_a_running_job_take_a_bounded_space_and_keep_their_offsets(begin):
    run = begin("flood.py", ranks=1, launch=LaunchMode.PROCESS, log_bytes=LIMIT)
    log = run.run_dir.attempt(1).rank(0).log("stdout")
    until(lambda: log.exists() and log.stat().st_size == PRINTED, "the script has printed everything", 120)
    until(lambda: log.stat().st_blocks * 512 <= LIMIT * 17 // 16 + (1 << 18), "the log is shortened while the job runs")
    (run.run_dir.code / "end").touch()
    assert run.finish() == "succeeded"
    assert log.stat().st_size == PRINTED + len("the end\n")
    with log.open("rb") as file:
        assert file.read(len(LINE)) == LINE
        file.seek(-len(LINE + b"the end\n"), os.SEEK_END)
        assert file.read() == LINE + b"the end\n"
