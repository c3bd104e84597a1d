"""Arguments of restarts and placeholders, with a real keeper and real ranks."""

from faults.conftest import Begin


def arguments(run, attempt, rank=0):
    line = next(line for line in run.log(rank, attempt=attempt).splitlines() if line.startswith("arguments"))
    return line.split()[1:]


def test_a_script_resumes_by_its_arguments_once_it_has_saved(begin: Begin) -> None:
    args = ["--out", "{snapshots}", "--lr={{x}}", "--load", "{latest:out/*.pt}", "--config", '{"a": {"b": 1}}', "${x}"]
    on_restart = ["{exists:out/*.pt}", "--init_from=resume", "--tag", "{job}-{attempt}"]
    run = begin("resumes_by_arguments.py", *args, on_restart=on_restart, max_failures=5)
    assert run.finish() == "succeeded"
    plain = ["--config", '{"a":', '{"b":', "1}}", "${x}"]
    out = ["--out", str(run.run_dir.snapshots), "--lr={x}"]
    assert arguments(run, 1) == [*out, *plain]
    assert arguments(run, 2) == [*out, *plain], "nothing is saved yet: the condition is not met"
    latest = str(run.run_dir.code / "out" / "epoch-10.pt")
    restart = ["--init_from=resume", "--tag", f"{run.run_dir.job_id}-3"]
    for rank in (0, 1):
        assert arguments(run, 3, rank) == [*out, "--load", latest, *plain, *restart]
