"""Jobs by filters, the summary, slots, recipes, pages and quotas: what the page of the queue requests."""

from pathlib import Path

import pytest

from api_server import ApiServer
from rekindle.contract.states import JobState
from rekindle_service.config.settings import Quota
from rekindle_service.jobs.quotas import Quotas


def names(server: ApiServer, query: str) -> list[str]:
    answer = server.api.get(f"/api/v1/jobs?{query}")
    assert answer.status_code == 200, answer.text
    return [job["name"] for job in answer.json()["items"]]


def test_jobs_are_found_by_a_part_of_their_name(server: ApiServer, code: Path) -> None:
    for name in ("Digits baseline", "digits 100%", "digits 100x", "a_b", "aXb", "O'Brien"):
        server.submit(code, name=name)
    assert names(server, "q=DIGITS") == ["digits 100x", "digits 100%", "Digits baseline"]
    assert names(server, "q=100%25") == ["digits 100%"]
    assert names(server, "q=a_b") == ["a_b"]
    assert names(server, "q=O'B") == ["O'Brien"]
    assert names(server, "q='%20OR%201=1%20--") == []
    assert names(server, "q=digits&name=digits+100x&state=queued") == ["digits 100x"]
    assert names(server, "q=digits&state=running") == []


def test_a_line_filters_by_state_tag_experiment_and_arguments(server: ApiServer, code: Path) -> None:
    for number in range(6):
        job = server.submit(code, name=f"run {number}", args=["--lr", f"0.{number}"])
        if number % 2:
            assert server.api.patch(f"/api/v1/jobs/{job['id']}", json={"tags": ["odd_one"]}).status_code == 200
        if number == 5:
            server.move(job, JobState.STARTING, JobState.FAILED)
    assert names(server, "q=lr>0.2+run") == ["run 5", "run 4", "run 3"]
    assert names(server, "q=lr>0.2+tag:odd_one+state:queued") == ["run 3"]
    assert names(server, "q=tag:oddxone") == []
    assert names(server, "q=is:unseen") == ["run 5"]
    assert names(server, "q=%234") == ["run 3"]
    first = server.api.get("/api/v1/jobs?q=lr>=0.1&limit=3").json()
    assert [job["name"] for job in first["items"]] == ["run 5", "run 4", "run 3"]
    second = server.api.get(f"/api/v1/jobs?q=lr>=0.1&limit=3&cursor={first['next']}").json()
    assert ([job["name"] for job in second["items"]], second["next"]) == (["run 2", "run 1"], None)
    refused = server.api.get("/api/v1/jobs?q=stat:failed")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "q")


def test_jobs_are_found_by_their_experiment(server: ApiServer, code: Path) -> None:
    server.submit(code, name="alone")
    base = {"script": str(code / "train.py"), "device": "cpu"}
    request = {"name": "pair", "base": base, "matrix": {"--lr": [0.1, 0.2]}, "measure": ["loss"]}
    answer = server.api.post("/api/v1/experiments", json=request)
    assert answer.status_code == 201, answer.text
    assert len(names(server, f"experiment={answer.json()['id']}")) == 2
    assert len(names(server, "q=experiment:pair+lr<0.15")) == 1
    assert names(server, "experiment=unheard-of") == []


def test_the_summary_counts_jobs_and_slots_and_weighs_goodput(server: ApiServer, code: Path) -> None:
    empty = server.api.get("/api/v1/summary").json()
    assert empty["jobs"] == dict.fromkeys(JobState, 0)
    assert empty["slots"] == {"held": 0, "total": 2}
    assert empty["goodput"] is None
    server.submit(code, name="waits")
    running = server.submit(code, name="runs")
    server.move(running, JobState.STARTING, JobState.RUNNING, devices=["cpu:1"])
    for seconds, goodput in ((30.0, 1.0), (10.0, 0.5)):
        done = server.submit(code)
        columns = {"started_at": 1000.0, "ended_at": 1000.0 + seconds, "goodput": goodput, "world_size": 2}
        server.move(done, JobState.STARTING, JobState.SUCCEEDED, **columns)
    summary = server.api.get("/api/v1/summary").json()
    counts = {state: count for state, count in summary["jobs"].items() if count}
    assert counts == {"queued": 1, "running": 1, "succeeded": 2}
    assert summary["slots"] == {"held": 1, "total": 2}
    assert summary["goodput"] == pytest.approx((30 * 1.0 + 10 * 0.5) / 40)


def test_a_slot_names_its_job_and_the_jobs_state(server: ApiServer, code: Path) -> None:
    job = server.submit(code, name="holder")
    server.move(job, JobState.STARTING, devices=["cpu:0"])
    taken, free = server.api.get("/api/v1/devices").json()["items"]
    assert (taken["job"], taken["job_name"], taken["job_state"]) == (job["id"], "holder", "starting")
    assert (free["job"], free["job_name"], free["job_state"]) == (None, None, None)


def test_recipes_are_listed_with_their_options(server: ApiServer) -> None:
    found = {recipe["name"]: recipe for recipe in server.api.get("/api/v1/recipes").json()["items"]}
    assert found["ddp"]["title"] == "Train on several ranks with DistributedDataParallel"
    options = {option["name"]: option for option in found["ddp"]["options"]}
    assert options["epochs"]["default"] == "20"
    assert options["model"]["choices"] == ["small-resnet", "resnet34", "lenet", "convnet", "transformer"]
    assert options["no-shuffle"]["is_flag"] is True
    assert options["batch-size"]["default"] is None
    assert {option["name"]: option["default"] for option in found["rl"]["options"]}["lr"] == "0.01"


def test_every_page_is_served_and_a_stranger_is_redirected_to_sign_in(server: ApiServer) -> None:
    for page in ("/", "/submit", "/compare", "/machine", "/experiments", "/experiments/x", "/jobs/x"):
        assert server.api.get(page).headers["content-type"].startswith("text/html"), page
        answer = server.stranger.get(page, headers={"Accept": "text/html"})
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/login"), page


# --- what may be submitted


def test_a_job_is_submitted_held_and_names_jobs_that_exist(server: ApiServer, code: Path) -> None:
    first = server.submit(code, hold=True)
    assert (first["intent"], first["state"]) == ("hold", "queued")
    second = server.submit(code, after_any=[first["id"]])
    assert second["after_any"] == [first["id"]]
    body = {"script": "train.py", "code": {"path": str(code)}, "after_any": ["nosuchjob1"], "after": ["nosuchjob2"]}
    answer = server.api.post("/api/v1/jobs", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["after", "after_any"]


def test_a_quota_rejects_a_job_that_could_never_start_and_one_too_many(server: ApiServer, code: Path) -> None:
    quotas = Quotas({"*": Quota(slots=1, queued=2)})
    object.__setattr__(server.state.submitter, "quotas", quotas)
    body = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu"}
    (code / "train.py").write_text("")
    refused = server.api.post("/api/v1/jobs", json={**body, "ranks": 2})
    assert refused.status_code == 422
    assert "who may hold 1 slots at once" in refused.json()["errors"][0]["rule"]
    statuses = [server.api.post("/api/v1/jobs", json=body) for _ in range(3)]
    assert [each.status_code for each in statuses] == [201, 201, 429]
    assert "at most 2 jobs at once, and 2 wait already" in statuses[2].json()["detail"]
    many = {"base": body, "array": "0-2"}
    assert server.api.post("/api/v1/experiments", json=many).status_code == 429
