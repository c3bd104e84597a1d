"""Experiments over HTTP: jobs made from a matrix, and the table of what they log."""

import json
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from job_examples import names_in
from job_records import record_attempt
from rekindle.contract.files import append_line
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.states import JobState
from rekindle_service.experiments.halving import SweepPruner
from rekindle_service.jobs import submitter as submitter_module
from rekindle_service.store import experiment_store
from rekindle_service.store.projection import RowChanges
from rekindle_service.submission import stored_values
from shared_server import one_server  # noqa: F401 the fixture server

PATH = "/api/v1/experiments"


def body(code: Path, **fields: Any) -> dict[str, Any]:
    (code / "train.py").write_text("")
    base = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "args": ["--epochs", "2"]}
    return {"name": "lr", "base": base, "matrix": {"--lr": [0.1, 0.01], "ranks": [1, 2]}, **fields}


def submitted(server: ApiServer, request: dict[str, Any]) -> dict[str, Any]:
    answer = server.api.post(PATH, json=request)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"{PATH}/{answer.json()['id']}"
    return answer.json()


def read(server: ApiServer, experiment: dict[str, Any]) -> dict[str, Any]:
    return server.api.get(f"{PATH}/{experiment['id']}").json()


def errors(server: ApiServer, request: Any) -> dict[str, dict[str, Any]]:
    """The errors by field of a request that is rejected and leaves nothing."""
    before = made(server)
    answer = server.api.post(PATH, json=request)
    assert answer.status_code == 422, answer.text
    assert made(server) == before
    return {one["field"]: one for one in answer.json()["errors"]}


def made(server: ApiServer) -> tuple[int, list[str], list[str]]:
    experiments = [one["id"] for one in server.api.get(PATH).json()["items"]]
    return len(server.state.store.lists.jobs()), experiments, names_in(server.state.home.runs)


def log(server: ApiServer, job: str, attempt: int, *points: tuple[int, dict[str, float | None]]) -> None:
    metrics = record_attempt(server.state.home.run_dir(job), attempt).rank(0).metrics
    for step, values in points:
        append_line(metrics, MetricPoint(step=step, epoch=0, at=1.0, values=values).to_json())


def test_a_matrix_becomes_jobs_with_their_own_arguments_ranks_and_names(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code))
    assert (experiment["name"], experiment["jobs"]) == ("lr", 4)
    assert (experiment["states"], experiment["over"], experiment["parameters"]) == (
        {"queued": 4}, False, ["--lr", "ranks"],
    )  # fmt: skip
    jobs = [server.api.get(f"/api/v1/jobs/{trial['job']}").json() for trial in experiment["trials"]]
    assert [(job["args"], job["ranks"]["max"]) for job in jobs] == [
        (["--epochs", "2", "--lr", lr], ranks) for lr in ("0.1", "0.01") for ranks in (1, 2)
    ]
    assert jobs[1]["name"] == "lr 2: --lr=0.1 ranks=2"
    assert {job["experiment_id"] for job in jobs} == {experiment["id"]}
    assert all((server.run_dir(job).code / "train.py").exists() for job in jobs)
    assert server.api.get(PATH).json()["items"][0]["id"] == experiment["id"]
    machine = experiment["machine"]
    assert machine["cores"] >= 1
    assert machine["torch"]
    assert machine["processor"]


def test_the_table_holds_what_was_logged_last_where_attempts_overlap(server: ApiServer, code: Path) -> None:
    request = body(code, matrix={"--lr": [0.1, 0.01]})
    request["measure"] = [
        "loss",
        {"metric": "loss", "take": "min"},
        {"metric": "loss", "relative_to": {"--lr": 0.1}},
    ]
    experiment = submitted(server, request)
    first, second = (trial["job"] for trial in experiment["trials"])
    log(server, first, 1, (1, {"loss": 4.0}), (2, {"loss": 3.0}), (3, {"loss": 0.5}))
    log(server, first, 2, (3, {"loss": 2.0}), (4, {"loss": 2.5}))
    log(server, second, 1, (1, {"loss": 5.0}))
    found = read(server, experiment)
    assert found["measures"] == ["loss", "min loss", "loss / --lr=0.1"]
    assert [row["values"] for row in found["rows"]] == [[2.5, 2.0, 1.0], [5.0, 5.0, 2.0]]
    curves = server.api.get(f"{PATH}/{experiment['id']}/curves", params={"name": "loss"}).json()["items"]
    assert [(curve["job"], [point[0] for point in curve["points"]]) for curve in curves] == [
        (first, [1, 2, 3, 4]), (second, [1]),
    ]  # fmt: skip


def test_without_measures_every_metric_is_a_column(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code, matrix={"--lr": [0.1]}))
    log(server, experiment["trials"][0]["job"], 1, (1, {"loss": 1.0, "accuracy": 0.5}), (2, {"loss": None}))
    found = read(server, experiment)
    assert (found["measures"], found["rows"][0]["values"]) == (["loss", "accuracy"], [None, 0.5])


def test_repeats_get_a_seed_each_and_share_a_row(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code, matrix={"--lr": [0.1]}, repeats=2, seed_option="--seed"))
    args = [server.api.get(f"/api/v1/jobs/{trial['job']}").json()["args"] for trial in experiment["trials"]]
    assert [each[2:4] for each in args] == [["--seed", "0"], ["--seed", "1"]]
    assert [row["trials"] for row in experiment["rows"]] == [[0, 1]]


@pytest.mark.parametrize(("fields", "parallel"), [({}, None), ({"sequential": True}, 1), ({"parallel": 2}, 2)])
def test_every_job_knows_its_limit_of_parallel_jobs(
    server: ApiServer, code: Path, fields: dict[str, Any], parallel: int | None
) -> None:
    experiment = submitted(server, body(code, matrix={"--lr": [1, 2, 3]}, **fields))
    jobs = [server.state.store.job(trial["job"]) for trial in experiment["trials"]]
    assert [job.parallel for job in jobs] == [parallel] * 3
    assert json.loads(server.run_dir({"id": jobs[0].id}).spec.read_text())["submission"]["parallel"] == parallel


def an_array(code: Path, array: str, **fields: Any) -> dict[str, Any]:
    base = {**body(code)["base"], "args": ["--part", "{index}/9"]}
    return {"name": "sweep", "base": base, "array": array, **fields}


def test_jobs_of_an_array_get_their_index_as_variable_and_argument(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, an_array(code, "0-8:4%2", args=["{{index}}"]))
    jobs = [server.state.store.job(trial["job"]) for trial in experiment["trials"]]
    assert [job.name for job in jobs] == ["sweep[0]", "sweep[4]", "sweep[8]"]
    assert [job.spec.args for job in jobs] == [["--part", f"{index}/9", "{{index}}"] for index in (0, 4, 8)]
    assert {job.parallel for job in jobs} == {2}
    environments = [json.loads(server.run_dir({"id": job.id}).environment.read_text()) for job in jobs]
    assert environments == [{"REKINDLE_ARRAY_INDEX": index} for index in "048"]
    assert [trial["parameters"] for trial in experiment["trials"]] == [{"index": 0}, {"index": 4}, {"index": 8}]
    assert experiment["definition"]["array"] == "0-8:4%2"


def test_every_job_of_an_experiment_has_the_same_copy_of_the_code(server: ApiServer, code: Path) -> None:
    """The first is copied from what was submitted, the others from the first, if the same files are wanted."""
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o755)
    (code / "package").mkdir()
    (code / "package" / "latest").symlink_to("../run.sh")
    (code / "other.py").write_text("")
    matrix = {"script": ["train.py", "other.py"], "--lr": [1, 2]}
    copies = []
    for request in (an_array(code, "0-2"), body(code, matrix=matrix)):
        runs = [server.run_dir({"id": trial["job"]}) for trial in submitted(server, request)["trials"]]
        copies += [(described(run.code), run.code_manifest.read_bytes()) for run in runs]
    assert copies == [copies[0]] * 7
    assert copies[0][0].keys() == described(code).keys()


def described(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time of change and content of each file or link, by its path."""
    return {
        str(each.relative_to(directory)): (
            each.lstat().st_mode,
            each.lstat().st_mtime_ns if each.is_file() and not each.is_symlink() else 0,
            str(each.readlink()) if each.is_symlink() else each.read_text() if each.is_file() else "",
        )
        for each in directory.rglob("*")
    }


def test_what_is_no_array_is_rejected_before_anything_is_made(server: ApiServer, code: Path) -> None:
    for array, rule in (
        ("0-1000000", "at most 10000 indices, and has 1000001"),
        ("5-2", "a range that is empty"),
        ("0-9:0", "a range that is empty"),
        ("1,1", "an index twice"),
        ("0-9%0", "a number above 0 after %"),
        ("a-b", "indices and ranges"),
        ("0-9,", "indices and ranges"),
    ):
        found = errors(server, an_array(code, array))
        assert list(found) == ["array"], array
        assert rule in found["array"]["rule"], array
    for more in ({"matrix": {"--lr": [1]}}, {"repeats": 2}):
        errors(server, an_array(code, "0-3", **more))


def test_a_repeat_of_the_key_is_answered_with_the_first_experiment(server: ApiServer, code: Path) -> None:
    header = {"Idempotency-Key": "once"}
    first, again = (server.api.post(PATH, json=body(code, name="repeated"), headers=header).json() for _ in range(2))
    assert again == first
    other = server.api.post(PATH, json=body(code, name="other"), headers=header)
    assert other.status_code == 422
    assert other.json()["errors"][0]["field"] == "Idempotency-Key"
    assert first["id"] in other.json()["detail"]
    (listed,) = [one for one in server.api.get(PATH).json()["items"] if one["name"] == "repeated"]
    assert (listed["id"], listed["jobs"]) == (first["id"], 4)


def test_values_of_the_environment_are_never_shown(server: ApiServer, code: Path) -> None:
    request = body(code)
    request["base"]["env"] = {"API_KEY": "secret-1234"}
    experiment = submitted(server, request)
    assert experiment["definition"]["base"]["env"] == {"API_KEY": "•••"}
    assert "secret-1234" not in server.api.get(f"{PATH}/{experiment['id']}").text
    job_id = experiment["trials"][0]["job"]
    assert server.state.store.job(job_id).spec.env == {"API_KEY": "•••"}
    stored = server.state.home.run_dir(job_id)
    assert (stored_values(stored), "secret-1234" in stored.spec.read_text()) == ({"API_KEY": "secret-1234"}, False)


def test_cancelling_stops_every_job_that_is_not_over(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code))
    done = {"id": experiment["trials"][0]["job"]}
    server.move(done, JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED)
    assert server.api.post(f"{PATH}/{experiment['id']}/cancel").status_code == 202
    intents = [server.state.store.job(trial["job"]).intent for trial in experiment["trials"]]
    assert intents == ["run", "cancel", "cancel", "cancel"]
    for trial in experiment["trials"][1:]:
        server.move({"id": trial["job"]}, JobState.CANCELLED)
    assert read(server, experiment)["over"] is True
    assert server.api.post(f"{PATH}/{experiment['id']}/cancel").status_code == 409


def test_failed_jobs_are_resumed_and_the_others_stay(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code))
    path = f"{PATH}/{experiment['id']}/resume"
    refused = server.api.post(path)
    assert (refused.status_code, "no job of experiment" in refused.json()["detail"]) == (409, True)
    jobs = [{"id": trial["job"]} for trial in experiment["trials"]]
    server.move(jobs[0], JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED)
    for failed in jobs[1:3]:
        server.move(failed, JobState.STARTING, JobState.RUNNING, JobState.FAILED)
    server.move(jobs[3], JobState.CANCELLED)
    assert server.api.post(path).json()["states"] == {"succeeded": 1, "queued": 2, "cancelled": 1}


def test_the_time_of_a_job_does_not_contain_the_gap_before_it_was_resumed(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code))
    store, first = server.state.store, {"id": experiment["trials"][0]["job"]}
    server.move(first, JobState.STARTING, JobState.RUNNING, started_at=100.0)
    row = store.job(first["id"])
    assert row is not None
    spans = {1: (100.0, 110.0), 2: (900.0, 930.0)}
    attempts = {
        number: AttemptInfo(number, run=number, started_at=start, ranks_running_at=start, ended_at=end)
        for number, (start, end) in spans.items()
    }
    assert store.apply_journal(row, RowChanges(row.journal_offset, attempts=attempts)) is not None
    server.move(first, JobState.SUCCEEDED, ended_at=930.0, run=2)
    assert [trial["seconds"] for trial in read(server, experiment)["trials"]] == [40.0, None, None, None]


def test_an_experiment_is_deleted_with_its_jobs_once_all_have_ended(
    server: ApiServer, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_store, "JOBS_AT_ONCE", 3)
    experiment, other = submitted(server, body(code)), submitted(server, body(code, name="other"))
    path = f"{PATH}/{experiment['id']}"
    refused = server.api.delete(path)
    assert (refused.status_code, "cancel it first" in refused.json()["detail"]) == (409, True)
    assert read(server, experiment)["jobs"] == 4
    for trial in experiment["trials"]:
        server.move({"id": trial["job"]}, JobState.CANCELLED)
    assert server.api.delete(path).status_code == 204
    assert server.api.get(path).status_code == 404
    listed = {one["id"] for one in server.api.get(PATH).json()["items"]}
    assert (experiment["id"] in listed, other["id"] in listed) == (False, True)
    assert experiment["id"] not in {job.experiment_id for job in server.state.store.lists.jobs()}
    assert read(server, other)["jobs"] == 4
    assert not server.state.home.experiment(experiment["id"]).exists()
    assert server.api.delete(path).status_code == 404


def test_the_best_row_of_each_measure_is_named(server: ApiServer, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measures = ["loss", {"metric": "lr", "goal": "max"}, "steps"]
    experiment = submitted(server, body(code, matrix={"--lr": [0.1, 0.2]}, measure=measures))
    for trial, loss in zip(experiment["trials"], (3.0, 2.0), strict=True):
        log(server, trial["job"], 1, (1, {"loss": loss, "lr": loss, "steps": loss}))
    found = read(server, experiment)
    assert (found["metrics"], found["goals"]) == (["loss", "lr", "steps"], ["min", "max", None])
    assert found["best"] == [[1], [0], []]
    best = server.api.get(f"{PATH}/{experiment['id']}/best").json()
    assert best["text"] == "best loss 2 with --lr 0.2; all 2 to 3"
    monkeypatch.setattr("rekindle_service.api.routes.experiment_routes.MAX_JOBS", 1)
    assert server.api.get(f"{PATH}/{experiment['id']}/best").json()["text"] == ""


def test_a_goal_chooses_the_winner_whose_command_is_given(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code, matrix={"--lr": [0.1, 0.2], "opt=": ["sgd"]}, goal="+gain"))
    assert (experiment["result"]["text"], experiment["best_command"]) == ("", None)
    for trial, gain in zip(experiment["trials"], (2.0, 1.0), strict=True):
        log(server, trial["job"], 1, (1, {"loss": gain, "gain": gain}))
    found = read(server, experiment)
    assert (found["measures"], found["goals"], found["best"]) == (["gain", "loss"], ["max", "min"], [[0], [1]])
    assert found["result"]["parameters"] == {"--lr": 0.1, "opt=": "sgd"}
    assert found["best_command"] == f"rekindle submit --code {code} --device cpu train.py --epochs 2 --lr 0.1 opt=sgd"


def test_a_table_without_values_says_why_and_what_to_do(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code, matrix={"--lr": [0.1, 0.2]}, goal="loss"))
    first, second = ({"id": trial["job"]} for trial in experiment["trials"])
    assert experiment["notes"] == []
    server.move(first, JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED)
    assert 'print("loss", loss)' in read(server, experiment)["notes"][0]
    log(server, first["id"], 1, (1, {"cost": 1.0}))
    assert read(server, experiment)["notes"] == ["No trial has loss. Choose one of its metrics: cost."]
    failing = submitted(server, body(code, matrix={"--lr": [0.1]}))
    server.move({"id": failing["trials"][0]["job"]}, JobState.STARTING, JobState.RUNNING, JobState.FAILED)
    number = failing["trials"][0]["number"]
    assert f"rekindle show {number}" in read(server, failing)["notes"][0]
    log(server, second["id"], 1, (1, {"loss": 1.0}))
    assert read(server, experiment)["notes"] == []


def test_a_lagging_trial_is_drained_once_unless_a_person_decided_otherwise(server: ApiServer, code: Path) -> None:
    store, pruner = server.state.store, SweepPruner(server.state.store, server.state.home)
    experiment = submitted(server, body(code, matrix={"--lr": [1, 2, 3, 4, 5]}, goal="loss", prune=True))
    jobs = [{"id": trial["job"]} for trial in experiment["trials"]]
    for loss, job in enumerate(jobs):
        server.move(job, JobState.STARTING, JobState.RUNNING)
        store.update_progress(job["id"], attempt=1, steps=9)
        log(server, job["id"], 1, (1, {"loss": float(loss)}))
    server.move(jobs[4], JobState.FAILED)  # the worst: no competitor, and never drained
    server.api.post(f"/api/v1/jobs/{jobs[3]['id']}/cancel")
    pruner.prune()
    assert [store.job(job["id"]).intent for job in jobs] == ["run", "run", "drain", "cancel", "run"]
    reasons = [trial["pruned"] for trial in read(server, experiment)["trials"]]
    assert reasons == [None, None, "pruned at step 1: loss 2 at step 1, the best third had ≤ 1", None, None]
    assert store.experiments.prune(jobs[2]["id"], "again") is None
    server.api.post(f"/api/v1/jobs/{jobs[2]['id']}/resume")
    SweepPruner(store, server.state.home).prune()  # of another server: a resumed trial is exempt there, too
    assert store.job(jobs[2]["id"]).intent == "run"
    assert read(server, experiment)["trials"][2]["pruned"] is None
    assert server.api.post(f"{PATH}/{experiment['id']}/cancel").status_code == 202
    pruner.prune()
    assert {store.job(job["id"]).intent for job in jobs[:4]} == {"cancel"}


def test_a_deleted_job_leaves_the_others_their_places(server: ApiServer, code: Path) -> None:
    experiment = submitted(server, body(code))
    gone = experiment["trials"][1]["job"]
    server.move({"id": gone}, JobState.CANCELLED)
    assert server.api.delete(f"/api/v1/jobs/{gone}").status_code == 204
    found = read(server, experiment)
    assert [row["parameters"] for row in found["rows"]] == [
        {"--lr": 0.1, "ranks": 1}, {"--lr": 0.01, "ranks": 1}, {"--lr": 0.01, "ranks": 2},
    ]  # fmt: skip


def test_what_cannot_be_a_set_of_jobs_is_rejected_whole_with_the_field_at_fault(server: ApiServer, code: Path) -> None:
    for fields, field, rule in (
        ({"matrix": {"lr": [0.1]}}, "matrix.0.lr", "'--lr'"),
        ({"matrix": {"rank": [1]}}, "matrix.0.rank", "'ranks'"),
        ({"matrix": {"--lr": []}}, "matrix.0.--lr", "at least 1"),
        ({"matrix": {"--lr": [[1]]}}, None, ""),
        ({"matrix": {"--lr": 1}}, "matrix.0.--lr", "list"),
        ({"matrix": {}}, "matrix.0", "at least 1"),
        ({"matrix": []}, "matrix", "at least 1"),
        ({"matrix": {"--a": list(range(200)), "--b": [1, 2]}}, "matrix", "maximum of 200 jobs"),
        ({"matrix": {"--lr": [1]}, "repeats": 0}, "repeats", "greater than or equal to 1"),
        ({"matrix": {"ranks": [1, 3]}}, "matrix.ranks", "exceeds the 2 CPU slots of this machine"),
        ({"matrix": {"ranks": ["two"]}}, "matrix.ranks", "whole number"),
        ({"matrix": {"recipe": ["dpp"]}}, "base", "exactly one of script, module and recipe"),
        ({"matrix": {"--lr": ["a\0b"]}}, None, "NUL"),
        ({"measure": [{"metric": "loss", "take": "median"}]}, "measure.0.take", "'min', 'max' or 'mean'"),
        ({"measure": [{"metric": "loss", "titel": "x"}]}, "measure.0.titel", "did you mean 'title'?"),
        ({"measures": ["loss"]}, "measures", "'measure'"),
        ({"goal": "foo"}, "goal", "write -foo if low values are better, +foo"),
        ({"prune": True}, "body", "needs a goal"),
        ({"size": "small"}, "body", "only a builtin has a size"),
        ({"measure": ["loss"], "conclude": {"--lr": "los"}}, "body", "los, which is no heading of a measure"),
        ({"builtin": "shuffle"}, "body", "exactly one of builtin, matrix and array"),
        ({"base": {"script": "train.py", "name": "x"}}, "base.name", "must be omitted"),
        ({"base": {"recipe": "dpp"}}, "base.recipe", "did you mean 'dp' or 'ddp'?"),
        ({"base": {"recipe": "ddp", "rank": 2}}, "base.rank", "'ranks'"),
        ({"base": {"recipe": "ddp", "env": {"PET_X": "1"}}}, "base.env", "cannot be set"),
        ({"base": {"script": "/nowhere/train.py"}}, "base.script", "not found in"),
    ):
        found = errors(server, body(code, **fields))
        assert rule in str(found.get(field) if field else found), (fields, found)


def test_a_wrong_builtin_is_answered_with_the_right_ones(server: ApiServer) -> None:
    every = "GET /api/v1/experiments/builtin lists the built-in experiments with their definitions"
    for request, field, hint in (
        ({"builtin": "shufle"}, "builtin", "did you mean 'shuffle'?"),
        ({"builtin": "shuffle", "size": "smal"}, "size", "did you mean 'small'?"),
        ({"builtin": "shuffle", "repeats": 2}, "body", "args and parallel may be given"),
        ({}, "body", every),
    ):
        assert errors(server, request)[field]["hint"] == hint, request


def test_every_builtin_can_be_sent_by_its_name_and_as_it_is_shown(server: ApiServer) -> None:
    items = server.api.get(f"{PATH}/builtin").json()["items"]
    assert {item["name"] for item in items} == {
        "dp-links", "ddp", "shuffle", "cross-gpu-shuffle", "metrics", "uneven", "scaling", "dp-vs-ddp", "batchnorm",
        "sync-every", "allreduce", "lenet", "primitives", "resnet34",
    }  # fmt: skip
    item = next(item for item in items if (item["name"], item["size"]) == ("dp-vs-ddp", "small"))
    named = submitted(server, {"builtin": "dp-vs-ddp", "args": ["--epochs", "1"]})
    assert named["command"] == "rekindle experiment dp-vs-ddp --follow -- --epochs 1"
    own = submitted(server, item["definition"])
    assert own["command"] is None
    assert [row["parameters"] for row in own["rows"]] == [row["parameters"] for row in named["rows"]]
    assert named["jobs"] == own["jobs"] == item["jobs"]
    limited = submitted(server, {"builtin": "shuffle", "parallel": 2})
    assert limited["command"] == "rekindle experiment shuffle --parallel 2 --follow"
    assert {server.state.store.job(trial["job"]).parallel for trial in limited["trials"]} == {2}


def test_a_builtin_leaves_out_what_this_machine_has_no_slots_for_with_a_note(server: ApiServer) -> None:
    experiment = submitted(server, {"builtin": "uneven"})
    assert [row["parameters"] for row in experiment["rows"]] == [{"ranks": 1}, {"ranks": 2}]
    tutorial, note = experiment["notes"]
    assert tutorial.startswith("Tutorial: ")
    assert "3 and 4 ranks" in note
    assert "REKINDLE_CPU_SLOTS=4" in note


def test_an_unknown_experiment_is_not_found(server: ApiServer) -> None:
    for path in ("nonsense", "aaaaaaaaaa", "..%2f..%2ftoken"):
        answer = server.api.get(f"{PATH}/{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert server.api.get(f"{PATH}/{path}/curves").status_code == 404
        assert server.api.post(f"{PATH}/{path}/cancel").status_code == 404


def test_a_disk_that_fails_half_way_leaves_no_job_and_no_directory(
    server: ApiServer, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made(server)
    real, written = submitter_module.write_json, list[Path]()

    def full_after_two(path: Path, value: Any, *, durable: bool = True) -> None:
        written.append(path)
        if len(written) > 2:
            raise OSError(28, "No space left on device")
        real(path, value, durable=durable)

    monkeypatch.setattr(submitter_module, "write_json", full_after_two)
    assert server.api.post(PATH, json=body(code)).status_code == 507
    assert made(server) == before


def test_pages_of_the_list_follow_each_other(server: ApiServer, code: Path) -> None:
    for name in "abc":
        submitted(server, body(code, name=name, matrix={"--lr": [1]}))
    first = server.api.get(PATH, params={"limit": 2}).json()
    second = server.api.get(PATH, params={"limit": 2, "cursor": first["next"]}).json()
    assert [one["name"] for one in (*first["items"], *second["items"])][:3] == ["c", "b", "a"]
    assert server.api.get(PATH, params={"limit": 200}).json()["next"] is None
    only = server.api.get(PATH, params={"name": "b", "limit": 1}).json()
    assert ([one["name"] for one in only["items"]], only["next"]) == (["b"], None)
