"""An experiment of a user's own script, from a file on the command line to the table."""

import json
import signal
from pathlib import Path

from cli_process import rekindle, start
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle_service.client import Client, is_settled

_SCRIPT = """
import sys
from rekindle import report
rate = float(sys.argv[sys.argv.index("--lr") + 1])
for step in range(1, 4):
    report(step=step, loss=step * rate)
if rate > 5:
    raise ValueError("too fast")
"""

_EXPERIMENT = """
title = "A rate that is right, and one that is not"
measure = ["loss", { metric = "loss", take = "min", title = "best" }]

[base]
script = "train.py"
device = "cpu"

[matrix]
--lr = [0.5, 8]
"""


def test_a_file_becomes_jobs_and_a_table_that_says_which_of_them_failed(
    home: Path, server: ServeProcess, tmp_path: Path
) -> None:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "train.py").write_text(_SCRIPT)
    (directory / "rates.toml").write_text(_EXPERIMENT)
    done = rekindle(home, "experiment", "--file", str(directory / "rates.toml"), "--follow", timeout=120)
    assert done.returncode == 1, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["A", "rate", "that", "is", "right,", "and", "one", "that", "is", "not"]
    assert lines[1:4] == [
        ["--lr", "loss", "best", "state"],
        ["0.5", "1.5", "*", "0.5", "*", "succeeded"],
        ["8", "24", "8", "failed"],
    ]
    assert lines[4][:2] == ["*", "best"]
    assert lines[5][:2] == ["Measured", "on"]
    assert "2 of 2" in done.stderr
    assert "ValueError" in done.stderr
    assert rekindle(home, "experiment", "--show", "rates").stdout == done.stdout
    assert "best loss 1.5 with" in rekindle(home).stdout
    (listed,) = json.loads(rekindle(home, "experiment", "--list", "-o", "json").stdout)["started"]
    assert (listed["name"], listed["over"], listed["states"]) == ("rates", True, {"succeeded": 1, "failed": 1})


_PLAIN = """
import sys, time
from pathlib import Path
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
for epoch in range(1, 10):
    while epoch > 4 and not Path(options["--gate"]).exists():
        time.sleep(0.05)
    print(f"Epoch {epoch}/9 loss {float(options['--lr']) / epoch:.4f}", flush=True)
"""


def test_a_sweep_drains_what_lags_through_a_kill_of_the_server_and_a_resumed_trial_is_left_alone(
    home: Path, server: ServeProcess, client: Client, tmp_path: Path
) -> None:
    script, gate = tmp_path / "train.py", tmp_path / "gate"
    script.write_text(_PLAIN)
    words = ["--goal", "loss", "--prune", "--device", "cpu", "-o", "id", str(script), "--lr", "9,18,27"]
    experiment_id = rekindle(home, "sweep", *words, "--", "--gate", str(gate)).stdout.strip()

    def pruned() -> list[str]:
        trials = client.experiment(experiment_id)["trials"]
        return [trial["job"] for trial in trials if trial["pruned"]]

    until(pruned, "a trial is pruned", timeout=60)
    server.kill()  # the request to drain may not have reached the keeper yet
    server.start()
    until(lambda: len(pruned()) == 2, "the two worse trials are pruned", timeout=60)
    until(lambda: all(is_settled(client.job(job)) for job in pruned()), "they are held", timeout=60)
    again, other = pruned()
    assert rekindle(home, "resume", again).returncode == 0
    gate.touch()
    followed = rekindle(home, "experiment", "--show", experiment_id, "--follow", timeout=120)
    assert followed.returncode == 0, followed.stderr
    assert client.job(again)["state"] == "succeeded"
    assert (client.job(other)["state"], pruned()) == ("queued", [other])
    assert "the best third had ≤ " in followed.stdout
    assert followed.stdout.splitlines()[-2].startswith("Best loss 1 with --lr 9; all 1 to ")
    command = followed.stdout.splitlines()[-1].split()
    assert command[:2] == ["rekindle", "submit"]
    assert command[-5:] == ["train.py", "--gate", str(gate), "--lr", "9"]
    best = rekindle(home, *command[1:2], "--follow", *command[2:], timeout=60)
    assert best.returncode == 0, best.stderr


def test_ctrl_c_leaves_the_jobs_alone_and_cancel_ends_them_all(home: Path, server: ServeProcess) -> None:
    held = rekindle(home, "submit", "--recipe", "ddp", "--ranks", "4", "-o", "id").stdout.strip()
    assert rekindle(home, "drain", held).returncode == 0
    file = home / "waits.json"
    base = {"recipe": "ddp", "device": "cpu", "after": [held]}
    file.write_text(json.dumps({"base": base, "matrix": {"--seed": [1, 2]}}))
    following = start(home, "experiment", "--file", str(file), "--follow")
    assert following.stderr is not None
    assert "Experiment 1 (" in following.stderr.readline()
    following.send_signal(signal.SIGINT)
    _, notes = following.communicate(timeout=30)
    assert following.returncode == 130
    assert "--show" in notes
    assert rekindle(home, "experiment", "--cancel", "waits").returncode == 0
    ended = rekindle(home, "experiment", "--show", "waits", "--follow")
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout.count("cancelled") == 2
    refused = rekindle(home, "experiment", "--cancel", "1")
    assert refused.returncode == 2
    assert "have ended" in refused.stderr
    deleted = rekindle(home, "experiment", "--delete", "waits", "--yes", "-o", "json")
    assert json.loads(deleted.stdout)["name"] == "waits", deleted.stderr
