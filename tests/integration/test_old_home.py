"""A home that version 0.1 has left opens: every job, record and file of it is served as it was stored."""

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

import old_home
from cli_process import start
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rest_api import RestApi

ENDED = [name for name, state in old_home.JOBS.items() if state != "queued"]
STARTED = [*ENDED, "drained"]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home; tests that share it change nothing."""
    return old_home.unpack(tmp_path_factory.mktemp("old") / "home")


@pytest.fixture(scope="module")
def api(old: Path) -> Iterator[RestApi]:
    with serving(old) as api:
        yield api


@contextmanager
def serving(home: Path) -> Iterator[RestApi]:
    with ServeProcess(home, cpu_slots=2) as server:
        yield RestApi(server)


# --- jobs


def test_every_job_is_listed_in_the_state_in_which_it_was_left(api: RestApi) -> None:
    assert api.states() == old_home.JOBS
    assert list(api.jobs()) == list(old_home.JOBS)


def test_a_job_has_the_options_that_it_was_submitted_with(api: RestApi) -> None:
    job = api.jobs()["faults"]
    assert (job["hang_timeout"], job["time_limit"], job["max_failures"], job["priority"]) == (120, 3600, 5, 2)
    assert (job["snapshot"]["every_steps"], job["snapshot"]["keep"]) == (4, 1)
    assert "-loss" in job["snapshot"].values()
    assert job["args"] == ["--pause", "0.3"]
    assert api.jobs()["recipe"]["ranks"] == {"min": 1, "max": 2}
    assert list(api.jobs()["never started"]["env"]) == ["COLOUR"]
    assert api.jobs()["waiting"]["after"] == [api.jobs()["drained"]["id"]]
    drained = api.jobs()["drained"]["snapshot"]
    assert (drained["every_steps"], drained["every_seconds"], drained["every_epochs"]) == (None, 60, 1)


def test_a_job_shows_how_far_it_came_and_how_it_ended(api: RestApi) -> None:
    outcomes = {name: (api.jobs()[name]["outcome"] or {}).get("class") for name in old_home.JOBS}
    expected = dict.fromkeys(ENDED, "success") | {"failed": "user_error", "cancelled": "cancelled"}
    assert outcomes == expected | {"drained": "preempted", "waiting": None, "never started": None}
    failed = api.jobs()["failed"]["outcome"]
    assert (failed["exception"], failed["file"], failed["retryable"]) == ("ValueError", "tiny.py", True)
    done = api.jobs()["faults"]
    assert (done["step"], done["epoch"], done["progress"], done["restarts"], done["attempt"]) == (32, 2, 1.0, 1, 2)
    assert 0 < done["goodput"] <= 1
    assert api.jobs()["cancelled"]["restarts"] == 0


@pytest.mark.parametrize("name", STARTED)
def test_the_attempts_of_a_job_are_as_its_journal_says(api: RestApi, old: Path, name: str) -> None:
    ended = old_home.records(old_home.run_directory(old, name), "attempt_ended")
    shown = api.get(f"{api.path(name)}/attempts")["items"]
    assert [one["number"] for one in shown] == [one["attempt"] for one in ended]
    for field in ("resumed_from_step", "last_step"):
        assert [one[field] for one in shown] == [one[field] for one in ended]
    assert [one["outcome"]["class"] for one in shown] == [one["outcome"]["class"] for one in ended]
    assert all(one["started_at"] < one["ranks_running_at"] < one["ended_at"] for one in shown)


def test_injected_faults_belong_to_the_attempt_that_they_struck(api: RestApi) -> None:
    first, second = api.get(f"{api.path('faults')}/attempts")["items"]
    assert [(one["fault"], one["rank"]) for one in first["faults"]] == [("corrupt-snapshot", None), ("kill", 1)]
    assert second["faults"] == []


def test_the_events_of_a_job_tell_its_way_through_the_states(api: RestApi) -> None:
    events = api.get(f"{api.path('cancelled')}/events", limit=100)["items"]
    changes = [event["to_state"] for event in sorted(events, key=lambda event: event["id"]) if event["to_state"]]
    once = ["queued", "starting", "running", "cancelled"]
    assert changes == once * 2
    assert any("3" in event["reason"] and event["to_state"] is None for event in events), "the rewind is an event"


# --- files of run directories


@pytest.mark.parametrize("name", STARTED)
def test_the_ranks_of_every_attempt_are_listed_as_ended(api: RestApi, name: str) -> None:
    for attempt in api.get(f"{api.path(name)}/attempts")["items"]:
        ranks = api.get(f"{api.path(name)}/ranks", attempt=attempt["number"])["items"]
        assert [rank["rank"] for rank in ranks] == list(range(attempt["world_size"]))
        assert {rank["state"] for rank in ranks} <= {"done", "drained", "failed", "killed"}
        assert {rank["host"] for rank in ranks} == {"gpu-box"}


@pytest.mark.parametrize("name", STARTED)
def test_logs_are_served_byte_by_byte(api: RestApi, old: Path, name: str) -> None:
    run = old_home.run_directory(old, name)
    for log in run.glob("attempts/*/ranks/*/std*.log"):
        attempt, rank, stream = log.parts[-4], log.parts[-2], log.stem
        answer = api.request("GET", f"{api.path(name)}/ranks/{rank}/log", attempt=attempt, stream=stream, offset=0)
        assert answer.content == log.read_bytes()
        assert int(answer.headers["x-next-offset"]) == log.stat().st_size


def test_logs_can_be_searched_and_downloaded(api: RestApi) -> None:
    path = api.path("faults")
    assert api.request("GET", f"{path}/ranks/0/log", tail=1).text.startswith("weights ")
    assert len(api.get(f"{path}/ranks/0/log/search", q="loss")["items"]) >= 1
    archive = api.request("GET", f"{path}/logs.zip")
    assert any(name.endswith("stdout.log") for name in ZipFile(BytesIO(archive.content)).namelist())


def test_metrics_are_read(api: RestApi) -> None:
    path = api.path("faults")
    assert [name["name"] for name in api.get(f"{path}/metrics/names")["items"]] == ["loss"]
    series = api.get(f"{path}/metrics", name="loss", max_points=1000)["items"]
    steps = {one["attempt"]: [point[0] for point in one["points"]] for one in series}
    assert steps[2][-1] == 32
    assert min(steps[1]) == 1


def test_snapshots_are_listed_with_their_score_and_pins(api: RestApi, old: Path) -> None:
    for name in STARTED:
        folders = (old_home.run_directory(old, name) / "snapshots").glob("[0-9]*")
        shown = {each["step"]: each for each in api.get(f"{api.path(name)}/snapshots")["items"]}
        assert sorted(shown) == sorted(int(folder.name) for folder in folders)
        assert all(each["verified"] for each in shown.values())
        if name == "faults":
            (pinned,) = json.loads((old_home.run_directory(old, name) / "pins.json").read_text())["steps"]
            assert [step for step, each in shown.items() if each["pinned"]] == [pinned]
            assert sum(each["best"] for each in shown.values()) == 1
            assert shown[32]["score"] > 0


@pytest.mark.parametrize("name", STARTED)
def test_the_time_of_a_job_is_accounted_for(api: RestApi, name: str) -> None:
    job, account = api.jobs()[name], api.get(f"{api.path(name)}/time")
    assert account["goodput"] == pytest.approx(job["goodput"], abs=0.05)
    assert sum(account["seconds"].values()) > 0


def test_what_a_job_used_and_ran_on_is_shown(api: RestApi, old: Path) -> None:
    path = api.path("faults")
    assert "rss_bytes" in json.dumps(api.get(f"{path}/usage"))
    assert "gpu-box" in json.dumps(api.get(f"{path}/configuration"))
    digest = json.loads((old_home.run_directory(old, "faults") / "code.json").read_text())["digest"]
    assert digest in json.dumps(api.get(f"{path}/configuration"))


def test_code_of_two_jobs_can_be_compared(api: RestApi) -> None:
    other = api.jobs()["drained"]["id"]
    assert api.get(f"{api.path('faults')}/code/differences", other=other)["items"] == []


def test_the_experiment_has_its_table(api: RestApi) -> None:
    (listed,) = api.get("/experiments")["items"]
    found = api.get(f"/experiments/{listed['id']}")
    assert (found["name"], found["states"], found["over"]) == ("rates", {"succeeded": 2}, True)
    assert found["parameters"] == ["--lr"]
    lines = [each for value in found.values() if isinstance(value, list) for each in value if "values" in each]
    assert len(lines) >= 2
    assert all(line["values"][0] > 0 for line in lines), "each trial has its measured loss"
    assert api.request("GET", f"/experiments/{listed['id']}/curves", name="loss").status == 200


def test_a_bundle_can_be_used_again(api: RestApi, old: Path, tmp_path: Path) -> None:
    code = api.jobs()["bundle"]["code"]
    assert (old / "bundles" / code["bundle"].removeprefix("sha256:") / "tiny.py").is_file()
    with serving(old_home.unpack(tmp_path / "home")) as other:
        held = other.jobs()["drained"]["id"]
        body = {"name": "again", "script": "tiny.py", "code": code, "device": "cpu", "after": [held]}
        assert other.post("/jobs", body)["code"] == code


# --- the command line


def output(home: Path, *words: str) -> str:
    """What a command prints; not by ``rekindle``, which allows no traceback, and one job has the user's own."""
    with start(home, *words) as command:
        shown, complaint = command.communicate(timeout=60)
    assert command.returncode == 0, complaint
    return shown


def test_the_command_line_lists_and_shows_old_jobs(api: RestApi, old: Path) -> None:
    listed = json.loads(output(old, "ps", "-o", "json"))
    assert {job["name"]: job["state"] for job in listed} == old_home.JOBS
    assert set(re.findall("succeeded|failed|cancelled", output(old, "ps"))) == {"succeeded", "failed", "cancelled"}
    for name in ("faults", "cancelled", "drained", "never started"):
        assert name in output(old, "show", name)
    assert "ValueError at tiny.py" in output(old, "show", "failed")


def test_the_command_line_prints_old_logs_and_snapshots(api: RestApi, old: Path) -> None:
    assert "weights" in output(old, "logs", "faults")
    assert "32" in output(old, "snapshots", "faults")


# --- the home as a whole


def test_a_second_start_changes_nothing(old: Path, tmp_path: Path) -> None:
    home = old_home.unpack(tmp_path / "home")
    seen = []
    for _ in range(2):
        with serving(home) as api:
            paths = ["/jobs?limit=100", "/experiments", *(f"{api.path(name)}/attempts" for name in STARTED)]
            seen.append([api.get(path)["items"] for path in paths])
    assert seen[0] == seen[1]
    assert len(list(home.glob("runs/*"))) == len(old_home.JOBS)


def test_a_lost_database_is_rebuilt_from_old_run_directories(api: RestApi, tmp_path: Path) -> None:
    """Every record of an old journal means the same as it did."""
    home = old_home.unpack(tmp_path / "home")
    for file in home.glob("rekindle.db*"):
        file.unlink()
    with serving(home) as rebuilt:
        until(lambda: rebuilt.states() == old_home.JOBS, "every job is back in its state")
        for name, job in rebuilt.jobs().items():
            stored = api.jobs()[name]
            for field in ("snapshot", "hang_timeout", "time_limit", "args", "ranks", "restarts", "outcome", "step"):
                assert job[field] == stored[field], f"{field} of {name}"
            assert attempts(rebuilt, name) == attempts(api, name), name
        for name in ("faults", "cancelled"):
            assert remarks(rebuilt, name) == remarks(api, name)


def attempts(api: RestApi, name: str) -> list[dict[str, object]]:
    """Without the reason why a run ended: that of an earlier run is not rebuilt."""
    return [{**one, "reason": None} for one in api.get(f"{api.path(name)}/attempts")["items"]]


def remarks(api: RestApi, name: str) -> int:
    """Events that the keeper has recorded and that changed no state: faults, a skipped snapshot, a rewind."""
    events = api.get(f"{api.path(name)}/events", limit=100)["items"]
    return sum(event["to_state"] is None and any(map(str.isdigit, event["reason"])) for event in events)


def test_receivers_are_notified_from_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened while the old server was not able to deliver is delivered, and nothing is delivered twice."""
    home, delivered = old_home.unpack(tmp_path / "home"), tmp_path / "delivered"
    with closing(sqlite3.connect(home / "rekindle.db")) as database, database:
        query = "SELECT event.id FROM event JOIN job ON job.id = job_id WHERE name = ? AND to_state = 'succeeded'"
        (known,) = database.execute(query, ("bundle",)).fetchone()
        changed = database.execute("UPDATE sequence SET value = ? WHERE name LIKE 'told:%'", (known,)).rowcount
    assert changed == 1
    monkeypatch.setenv("DELIVERED", str(delivered))
    with serving(home) as api:
        ids = {job["id"]: name for name, job in api.jobs().items()}
        until(lambda: delivered.exists() and delivered.read_text().count("\n") >= 3, "old events are delivered")
        time.sleep(0.5)
    lines = [line.split() for line in delivered.read_text().splitlines()]
    told = sorted((ids[event_id.partition("-")[0]], happening) for event_id, happening in lines)
    assert told == [
        ("drained", "drained"), ("rates 1: --lr=0.01", "succeeded"), ("rates 2: --lr=0.05", "succeeded")
    ]  # fmt: skip
