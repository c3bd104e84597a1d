"""`rekindle diff` against a real server, with digests that the test writes."""

import json
from pathlib import Path

from cli_process import rekindle
from digest_files import DigestWriter
from rekindle.contract.run_dir.digest_records import TensorKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.config.home import Home


def submit(home: Path, directory: Path, *words: str) -> RunDir:
    (directory / "train.py").touch()
    done = rekindle(home, "submit", "--hold", "--device", "cpu", "-o", "id", *words, "train.py", cwd=directory)
    assert done.returncode == 0, done.stderr
    return Home(home).run_dir(done.stdout.strip())


def test_jobs_and_attempts_are_compared_and_the_exit_code_is_the_verdict(served_home: Path, tmp_path: Path) -> None:
    first, second = (submit(served_home, tmp_path, "--name", name) for name in ("one", "two"))
    nothing = rekindle(served_home, "diff", "one", "two")
    assert nothing.returncode == 2
    assert nothing.stdout.startswith("Nothing can be compared: ")
    steps = range(100, 600, 100)
    DigestWriter(first).write(steps)
    writer = DigestWriter(second)
    writer.write(steps)
    equal = rekindle(served_home, "diff", "one", "two@1")
    assert (equal.returncode, equal.stdout) == (0, "Identical over 5 common steps, 100 to 500.\n")
    later = DigestWriter(second, attempt=2)
    later.write([400, 500], later.tensors(500, 1, TensorKind.PARAMETERS, 0))
    differs = rekindle(served_home, "diff", "two@1", "two@2")
    lines = differs.stdout.splitlines()
    assert differs.returncode == 1, differs.stderr
    assert lines[0] == "First difference: step 500, parameters of fc.weight on rank 1; equal up to step 400."
    assert lines[-1].startswith("Find the step: rekindle replay ")
    found = rekindle(served_home, "diff", "one", "two", "-o", "json")
    assert (found.returncode, json.loads(found.stdout)["difference"]["step"]) == (1, 500)
    assert rekindle(served_home, "diff", "one", "two", "-o", "id").stdout == "500\n"
    unknown = rekindle(served_home, "diff", "one", "two@7")
    assert (unknown.returncode, "no attempt 7" in unknown.stderr) == (2, True)
