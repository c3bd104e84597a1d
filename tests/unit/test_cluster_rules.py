"""Requests for several nodes: how they become specs, and which cannot."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fakes.fake_slurm import FakeSlurm
from fakes.launching import slurm_launcher
from job_examples import a_submission
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import LaunchMode, LinkRule, SlurmOptions
from rekindle_service.api.problems import field_errors
from rekindle_service.api.request_conversion import submission_of
from rekindle_service.config.home import Home
from rekindle_service.launch.slurm.slurm_commands import SlurmCommands
from rekindle_service.launch.slurm.slurm_requests import SlurmRequests, slurm_rules
from rekindle_service.schemas.job_requests import JobCreate


def spec_of(**body: Any) -> JobSpec:
    return submission_of(JobCreate.model_validate({"recipe": "ddp", **body})).spec


def size(**body: Any) -> tuple[int, int, int, int]:
    """Least and most nodes, least and most ranks."""
    spec = spec_of(**body)
    return spec.min_nodes, spec.nodes, spec.min_ranks, spec.max_ranks


def test_ranks_are_the_number_on_all_nodes() -> None:
    assert size(nodes=2, ranks=8) == (2, 2, 8, 8)
    assert size(nodes={"min": 1, "max": 4}, ranks=16) == (1, 4, 4, 16)
    assert size(nodes={"min": 1, "max": 4}) == (1, 4, 1, 4)
    assert size(slurm={}) == (1, 1, 1, 1)
    assert size(ranks={"min": 1, "max": 3}) == (1, 1, 1, 3)


def test_several_nodes_are_a_request_for_slurm() -> None:
    assert spec_of(nodes=2).slurm == SlurmOptions()
    assert spec_of().slurm is None
    assert spec_of(slurm={"partition": "gpu", "extra": ["--mem=1G"]}).slurm == SlurmOptions("gpu", extra=["--mem=1G"])


def requests_to(slurm: FakeSlurm) -> SlurmRequests:
    """Whether Slurm would take a job is asked without looking at other jobs."""
    return SlurmRequests(SlurmCommands(slurm), None, None)


def broken(**options: Any) -> list[str]:
    defaults = {"slurm": SlurmOptions(), "nodes": 2, "min_nodes": 2, "min_ranks": 2, "max_ranks": 2, "device": "cpu"}
    spec = a_submission(Path("/"), **{**defaults, **options}).spec
    return [error.field for error in slurm_rules(spec)]


def test_what_cannot_run_on_several_nodes_is_refused() -> None:
    assert "ranks" in broken(max_ranks=3, min_ranks=3)
    assert "ranks" in broken(min_nodes=1)
    assert "nodes" in broken(min_nodes=3)
    assert "device" in broken(device="cuda:0,cuda:1")
    assert "env.CUDA_VISIBLE_DEVICES" in broken(env={"CUDA_VISIBLE_DEVICES": "0"})
    assert "links" in broken(links=LinkRule.REQUIRED)
    assert "nodes" in broken(launch=LaunchMode.PROCESS)
    assert "python" in broken(python="python3")
    assert "gpu_share" in broken(gpu_share=0.5)
    assert "slurm.extra" in broken(slurm=SlurmOptions(extra=["--array=1-3"]))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("mem", ["32G", "0", "500", "2t"]),
        ("gres", ["gpu:4", "gpu:a100:4,tmpdisk:100G", "gpu:1g.10gb:2", "license"]),
        ("gpus_per_node", ["4", "a100:4", "3090:2"]),
        ("prologue", [["module load cuda"], ["source ~/x.sh; conda activate x", 'export A="b c"']]),
    ],
)
def test_what_sbatch_and_bash_take_is_accepted(field: str, values: list[Any]) -> None:
    for value in values:
        assert getattr(spec_of(slurm={field: value}).slurm, field) == value


@pytest.mark.parametrize(
    ("field", "values", "hint"),
    [
        ("mem", ["12X", "-1G", "32 G", "", "1.5G", "32G\n", "٣G"], "such as 32G"),
        ("gres", ["gpu: 4", "gpu:-1", "gpu:4,", "--gres=gpu", "\x07", ""], "such as gpu:4"),
        ("gpus_per_node", ["-1", "0", "4.5", "a100:", "a 100:4", "4\x00", "a100:4:2"], "such as 4"),
        ("prologue.0", [[""], ["  "], ["a\nb"], ["\x1b[2J"]], "line breaks are control characters"),
    ],
)
def test_what_neither_takes_is_refused_with_its_rule_and_the_next_step(
    field: str, values: list[Any], hint: str
) -> None:
    for value in values:
        with pytest.raises(ValidationError) as caught:
            spec_of(slurm={field.partition(".")[0]: value})
        (error,) = field_errors([{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()], JobCreate)
        assert (error.field, error.value) == (f"slurm.{field}", value[0] if isinstance(value, list) else value)
        assert error.rule.startswith("must"), value
        assert hint in error.hint, value


def test_what_a_field_says_is_not_said_again_as_a_further_option() -> None:
    options = {
        "mem": ("32G", ["--mem=1G", "--mem-per-cpu=1G", "--mem-per-gpu=1G"], "--mem-bind=local"),
        "gres": ("gpu:1", ["--gres=gpu:2"], "--gres-flags=enforce-binding"),
        "gpus_per_node": ("1", ["--gpus-per-node=2", "--gpus=4", "--gpus-per-task=1"], "--gpu-bind=closest"),
    }
    for field, (value, others, fine) in options.items():
        for option in others:
            assert broken(slurm=SlurmOptions(extra=[option])) == []
            assert broken(slurm=SlurmOptions(**{field: value}, extra=[fine, option])) == [f"slurm.{field}"]
        assert broken(slurm=SlurmOptions(**{field: value}, extra=[fine])) == []


def test_a_sound_request_breaks_no_rule_whatever_this_machine_has(tmp_path: Path) -> None:
    assert broken() == []
    assert broken(nodes=8, min_nodes=4, min_ranks=32, max_ranks=64, device="cuda") == []
    spec = a_submission(Path("/"), slurm=SlurmOptions(), device="auto").spec
    asked = a_submission(Path("/"), slurm=SlurmOptions(), launch=LaunchMode.TORCHRUN)
    placed = slurm_launcher(None, Home(tmp_path)).place(asked).spec
    assert (spec.device, placed.device, placed.slurm) == ("auto", "cpu", SlurmOptions())


def test_slurms_own_sentence_is_shown_at_the_field_that_it_is_about() -> None:
    options = {"slurm": SlurmOptions("gpu", mem="9T"), "nodes": 2, "min_nodes": 2, "min_ranks": 2, "max_ranks": 2}
    spec = a_submission(Path("/"), device="cpu", **options).spec
    fields = {
        "allocation failure: Invalid partition name specified\n": ("slurm.partition", "gpu"),
        "allocation failure: Requested node configuration is not available\n": ("nodes", {"min": 2, "max": 2}),
        "sbatch: error: Invalid --time specification\n": ("slurm.time", None),
        "allocation failure: Invalid feature specification\n": ("slurm.constraint", None),
        "sbatch: error: Invalid generic resource (gres) specification\n": ("device", "cpu"),
        "allocation failure: Invalid account or account/partition combination specified\n": ("slurm.account", None),
        "allocation failure: Memory specification can not be satisfied\n": ("nodes", {"min": 2, "max": 2}),
        "sbatch: unrecognized option '--foo'\nTry \"sbatch --help\" for more information\n": ("slurm", []),
    }
    for stderr, field in fields.items():
        (error,) = requests_to(FakeSlurm(refusal=stderr)).errors(spec)
        assert (error.field, error.value) == field, stderr
        assert error.rule.startswith("Slurm refuses the job: ")
    no_node = FakeSlurm(refusal="allocation failure: Requested node configuration is not available\n")
    no_node.refused = "--mem=9T"
    (error,) = requests_to(no_node).errors(spec)
    assert (error.field, error.value) == ("slurm.mem", "9T")
    assert "sinfo" in error.hint
    refusal = FakeSlurm(refusal="sbatch: error: Invalid generic resource (gres) specification\n")
    for name in ("gres", "gpus_per_node"):
        asked = replace(spec, slurm=SlurmOptions(**{name: "4"}))
        assert requests_to(refusal).errors(asked)[0].field == f"slurm.{name}"
    large = a_submission(Path("/"), device="cpu", **{**options, "slurm": SlurmOptions(extra=["--mem=9T"])}).spec
    refusal = "allocation failure: Requested node configuration is not available\n"
    assert requests_to(FakeSlurm(refusal=refusal, unusable="n1\n")).errors(large) == []
    (error,) = requests_to(FakeSlurm(refusal=refusal)).errors(large)
    assert error.hint == "it asks for --nodes=2 --mem=9T; sinfo -N -l lists what the nodes have"


def test_the_trials_of_an_experiment_ask_slurm_once_and_are_accepted_where_it_does_not_answer() -> None:
    spec = a_submission(Path("/"), device="cpu", slurm=SlurmOptions()).spec
    slurm = FakeSlurm()
    cluster = requests_to(slurm)
    assert [cluster.errors(spec) for _ in range(50)] == [[]] * 50
    assert slurm.calls["sbatch"] == 1
    down = requests_to(FakeSlurm(down=True))
    assert down.errors(spec) == []
    assert down._device(SlurmOptions()) == "cpu"
    with_gpus = requests_to(FakeSlurm(gres="gpu:4\n"))
    assert [with_gpus._device(SlurmOptions(partition)) for partition in (None, "gpu")] == ["cuda", "cuda"]
