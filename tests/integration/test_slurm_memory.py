"""The memory that a job for Slurm requests where its submission leaves that open: from what a like job has used."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_slurm import FakeSlurm
from fakes.launching import fake_launchers, slurm_launcher
from job_examples import a_submission, an_experiment, cpu_machine, open_store, queued_job
from rekindle.contract.files import append_line
from rekindle.contract.job_options import SlurmOptions
from rekindle.contract.run_dir.attempt_samples import RankUsage, UsageSample
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.experiments.experiment_submitter import submit_jobs
from rekindle_service.experiments.trials import Trial
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.launch.local.interpreter import EditableModule
from rekindle_service.launch.slurm.slurm_commands import SlurmCommands
from rekindle_service.store.tables import Job
from rekindle_service.submission import Submission

_GIB = 1 << 30
_SIZE = {"nodes": 2, "min_nodes": 2, "min_ranks": 4, "max_ranks": 4}
Ended = Callable[..., Job]
Asked = Callable[..., Submission]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def submitter(home: Home, slurm: FakeSlurm) -> Iterator[Submitter]:
    store = open_store(home.root)
    launcher = slurm_launcher(store, home, SlurmCommands(slurm))
    yield Submitter(store, home, fake_launchers(store, home, cpu_machine(1), slurm=launcher))
    store.close()


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("import lib\n")
    return lambda **options: a_submission(code, **{"name": "lr 2", **_SIZE, "slurm": SlurmOptions(), **options})


@pytest.fixture
def ended(submitter: Submitter) -> Ended:
    """Adds a job that has ended; its ranks used ``used`` GiB in the second of its ``samples``, else 1 GiB each."""

    def add(used: tuple[float, ...] = (1, 1, 1, 2), samples: int = 3, **columns: Any) -> Job:
        given = {"name": "lr 1", "state": JobState.SUCCEEDED, "attempt": 2, "ended_at": 9.0, **_SIZE, **columns}
        job = queued_job(submitter.store, submitter.home, slurm=SlurmOptions(), **given)
        log = submitter.home.run_dir(job.id).attempt(2).usage
        log.parent.mkdir(parents=True)
        for number in range(samples):
            sizes = used if number == 1 else (1,) * len(used)
            ranks = [RankUsage(rank, None, int(size * _GIB), 0, 0) for rank, size in enumerate(sizes)]
            append_line(log, UsageSample(float(number), ranks, []).to_json())
        return job

    return add


def requested(submitter: Submitter, submission: Submission) -> str | None:
    spec = submitter.submit(submission).spec
    assert spec.slurm is not None
    assert len(spec.warnings) == (spec.slurm.mem is not None)
    return spec.slurm.mem


def test_a_job_requests_twice_what_a_like_one_used_on_one_node_and_says_so(
    submitter: Submitter, asked: Asked, ended: Ended
) -> None:
    assert requested(submitter, asked()) is None
    before = ended()
    modules = [EditableModule("lib", Path("/me/lib"))]
    job = replace(submitter, editable_modules=lambda _: modules).submit(asked())
    assert job.spec.slurm == SlurmOptions(mem="7G")
    assert job.spec.warnings[0] == (
        f"Slurm is asked for 7 GiB of memory on each node: twice the 3.0 GiB that lr 1 (#{before.number}) used, and "
        "1 GiB more. Choose another amount with slurm.mem (--slurm-mem)."
    )
    assert len(job.spec.warnings) == 2
    draft = replace(submitter, editable_modules=lambda _: modules).draft(asked())
    assert (draft.job.spec.slurm, draft.job.spec.warnings) == (job.spec.slurm, job.spec.warnings)
    assert submitter.store.job(job.id).spec == job.spec


def test_the_trials_of_an_experiment_request_it_too(submitter: Submitter, asked: Asked, ended: Ended) -> None:
    ended()
    experiment = an_experiment("exp0000001", definition={"sequential": False})
    submit_jobs(submitter, experiment, [(Trial({"lr": 1}, 0), asked()), (Trial({"lr": 2}, 0), asked(name="lr 3"))])
    jobs = submitter.store.lists.jobs(experiment_id="exp0000001")
    assert [job.spec.slurm.mem for job in jobs] == ["7G", "7G"]


@pytest.mark.parametrize(
    "options",
    [SlurmOptions(mem="2G"), SlurmOptions(extra=["--mem-per-cpu=1G"]), SlurmOptions(extra=["--mem=0"])],
    ids=["field", "per processor", "all"],
)
def test_what_a_submission_says_of_memory_stays(
    submitter: Submitter, asked: Asked, ended: Ended, options: SlurmOptions
) -> None:
    ended()
    assert submitter.submit(asked(slurm=options)).spec.slurm == options


@pytest.mark.parametrize(
    "columns",
    [
        {"name": "other"},
        {"target": "eval.py"},
        {"owner": "ann"},
        {"max_ranks": 8, "min_ranks": 8},
        {"samples": 2},
        {"state": JobState.CANCELLED},
        {"state": JobState.FAILED, "outcome": {"class": "user_error"}},
    ],
    ids=lambda columns: "-".join(columns),
)
def test_a_job_that_shows_nothing_of_this_one_does_not_count(
    submitter: Submitter, asked: Asked, ended: Ended, columns: dict[str, Any]
) -> None:
    ended(**columns)
    assert requested(submitter, asked()) is None


def test_after_a_job_that_may_have_run_out_of_memory_the_choice_is_slurms(
    submitter: Submitter, asked: Asked, ended: Ended
) -> None:
    ended()
    ended(state=JobState.FAILED, outcome={"class": "user_error"})
    assert requested(submitter, asked()) == "7G"
    ended(state=JobState.FAILED, outcome={"class": "oom"})
    assert requested(submitter, asked()) is None
    ended(used=(2, 2, 2, 2))
    assert requested(submitter, asked()) == "9G"


def test_a_job_does_not_request_by_itself_what_no_node_has(
    submitter: Submitter, asked: Asked, ended: Ended, slurm: FakeSlurm
) -> None:
    ended()
    slurm.refusal, slurm.refused = "allocation failure: Memory specification can not be satisfied\n", "--mem=7G"
    assert requested(submitter, asked()) is None
