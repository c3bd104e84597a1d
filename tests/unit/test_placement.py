import re
import tomllib
from dataclasses import replace

import pytest

import doc_pages
from job_examples import a_submission as asked
from job_examples import cpu_machine, gpu_machine
from rekindle.contract.job_options import LaunchMode, LinkRule, TargetKind
from rekindle_service.api.request_conversion import plan_experiment
from rekindle_service.config.home import new_job_id
from rekindle_service.jobs.submitter import new_job
from rekindle_service.jobs.validation import validate
from rekindle_service.launch.placement import device_errors, place_here
from rekindle_service.machine.slots import Machine
from rekindle_service.scheduler.allocation import AllocationState, allocate
from rekindle_service.schemas.experiment_json import ExperimentCreate

_LINKED = gpu_machine(8, {(5, 6): "nvlink", (5, 7): "sys", (6, 7): "sys"})
GPUS = Machine((*_LINKED.slots, *cpu_machine(2).slots), _LINKED.links)
AUTO = {"launch": LaunchMode.AUTO}


@pytest.fixture
def code(tmp_path):
    (tmp_path / "train.py").write_text("")
    return tmp_path


def errors(submission, machine=GPUS):
    placement = place_here(submission, machine)
    found = [*validate(submission, placement, lambda _: True), *device_errors(placement.spec, machine)]
    return [(each.field, each.rule, each.hint) for each in found]


def test_named_devices_give_the_number_of_ranks_where_the_request_does_not(code):
    named = replace(asked(code, device="cuda:5,cuda:6", **AUTO), has_size=False)
    spec = place_here(named, GPUS).spec
    assert (spec.device_kind, spec.min_ranks, spec.max_ranks, spec.devices_per_rank) == ("cuda", 2, 2, 1)
    process = replace(named, spec=replace(named.spec, launch=LaunchMode.PROCESS))
    spec = place_here(process, GPUS).spec
    assert (spec.min_ranks, spec.max_ranks, spec.devices_per_rank) == (1, 1, 2)
    assert place_here(replace(named, has_size=True), GPUS).spec.max_ranks == 1


@pytest.mark.parametrize(
    ("value", "device"), [("5,6", "cuda:5,cuda:6"), ("GPU-0005", "cuda:5"), ("", "cpu"), ("-1", "cpu")]
)
def test_the_visible_devices_of_the_environment_are_a_choice_of_devices(code, value, device):
    submission = asked(code, env={"CUDA_VISIBLE_DEVICES": value, "A": "b"})
    assert errors(submission) == []
    spec = place_here(submission, GPUS).spec
    assert (spec.device, spec.env) == (device, {"A": "b"})


@pytest.mark.parametrize(
    ("value", "device", "machine", "reason"),
    [
        ("8", "auto", GPUS, "choose them with device (--device)"),
        ("5,5", "auto", GPUS, "must name different GPUs"),
        ("0", "cpu", GPUS, "cannot be set together with the device cpu"),
        ("0", "cuda:1", GPUS, "omit it: device alone chooses"),
        ("0", "auto", cpu_machine(2), "it has no GPU"),
    ],
)
def test_visible_devices_that_cannot_be_honoured_are_an_error(code, value, device, machine, reason):
    (error,) = errors(asked(code, device=device, env={"CUDA_VISIBLE_DEVICES": value}), machine)
    assert error[0] == "env.CUDA_VISIBLE_DEVICES"
    assert reason in " ".join(error)


def test_devices_that_this_machine_does_not_have_are_an_error(code):
    assert errors(asked(code, device="cuda:7,cuda:9"))[0][:2] == ("device", "must name slots of this machine")
    assert errors(asked(code, device="cuda:5", max_ranks=2))[0][1] == "exceeds the 1 slots that device names"
    assert errors(asked(code, devices_per_rank=9)) == [
        ("ranks", "exceeds the 8 CUDA slots of this machine", "each rank gets 9 devices")
    ]


def test_links_are_required_only_of_a_machine_that_has_them(code):
    two = {"min_ranks": 2, "max_ranks": 2}
    assert errors(asked(code, links=LinkRule.REQUIRED, **two)) == []
    assert errors(asked(code, links=LinkRule.AVOIDED, device="cuda:5,cuda:6", **two))[0][0] == "links"
    assert errors(asked(code, links=LinkRule.REQUIRED, **two), cpu_machine(2))[0][0] == "links"
    assert errors(asked(code, links=LinkRule.REQUIRED))[0][1] == "needs at least 2 devices"


def test_a_recipe_of_one_process_is_started_as_one(code):
    recipe = asked(kind=TargetKind.RECIPE, target="dp", devices_per_rank=2, **AUTO)
    assert place_here(recipe, GPUS).spec.launch is LaunchMode.PROCESS
    assert place_here(asked(kind=TargetKind.RECIPE, target="ddp", **AUTO), GPUS).spec.launch is LaunchMode.TORCHRUN
    (error,) = errors(asked(kind=TargetKind.RECIPE, target="dp", min_ranks=2, max_ranks=2, **AUTO))
    assert error[1] == "must be 1, since the job is one process: recipe dp runs in one process"
    assert "devices_per_rank: 2 (--devices-per-rank)" in error[2]


SPAWN = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp
def train(rank, size):
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=size)
def start(function, size):
    mp.spawn(function, args=(size,), nprocs=size, join=True)
if __name__ == "__main__":
    start(train, 2)
"""
BY_HAND = """
import torch.distributed as dist
import torch.multiprocessing as mp
def init(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)
if __name__ == "__main__":
    for rank in range(2):
        mp.Process(target=init, args=(rank, 2)).start()
"""
DATA_PARALLEL = """
from torch import nn
import torch
model = nn.Linear(1, 1)
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
"""


def test_a_linked_pair_against_one_that_is_not_is_one_experiment():
    pairs = {(0, 1): "nvlink", (2, 3): "nvlink", (0, 2): "sys", (0, 3): "sys", (1, 2): "sys", (1, 3): "sys"}
    machine = gpu_machine(4, pairs)
    blocks = re.findall(r"```toml\n(.*?)```", (doc_pages.ROOT / "docs" / "experiments.md").read_text(), re.DOTALL)
    (text,) = [block for block in blocks if "links" in block]
    row, trials = plan_experiment(ExperimentCreate.model_validate(tomllib.loads(text)), machine)
    placed = [place_here(submission, machine).spec for _, submission in trials]
    assert [errors(one, machine) for _, one in trials] == [[], []]
    starts = [allocate([new_job(new_job_id(), spec)], AllocationState(machine)).starts for spec in placed]
    assert [devices for ((_, devices),) in starts] == [["cuda:0", "cuda:1"], ["cuda:0", "cuda:2"]]
    assert row.definition["matrix"] == [{"links": ["required", "avoided"]}]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (SPAWN, 9),
        (BY_HAND, 8),
        (DATA_PARALLEL, 6),
        (SPAWN.replace("    mp.spawn", "    if size > 1: mp.spawn"), None),
        (SPAWN + "rank = os.environ['LOCAL_RANK']", None),
        (SPAWN + "import accelerate", None),
        (SPAWN.replace("import torch.multiprocessing as mp", "import other as mp"), None),
        (DATA_PARALLEL + "import torch.distributed", None),
        (DATA_PARALLEL.replace("nn.DataParallel", "nn.Identity"), None),
        ("mp.spawn(", None),
        ("\0", None),
    ],
)
def test_scripts_that_start_their_own_processes_are_found_where_that_is_sure(tmp_path, source, line):
    (tmp_path / "train.py").write_text(source)
    placed = place_here(asked(tmp_path, **AUTO), cpu_machine(2))
    assert placed.spec.launch is (LaunchMode.TORCHRUN if line is None else LaunchMode.PROCESS)
    assert line is None or placed.reason.endswith(f"in line {line}")
    explicit = place_here(asked(tmp_path, launch=LaunchMode.TORCHRUN), cpu_machine(2))
    assert explicit.spec.launch is LaunchMode.TORCHRUN


def test_a_script_is_searched_only_within_its_code_also_by_a_link(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    for directory in (tmp_path, code):
        (directory / "spawn.py").write_text(SPAWN)
    (code / "inner.py").symlink_to("spawn.py")
    (code / "outer.py").symlink_to("../spawn.py")
    found = {name: place_here(asked(code, target=name, **AUTO), cpu_machine(2)).reason is not None for name in NAMES}
    assert found == NAMES


NAMES = {"spawn.py": True, "inner.py": True, "outer.py": False, "../spawn.py": False}


def test_a_share_of_a_gpu_needs_a_gpu_of_this_machine(code):
    assert errors(asked(code, device="cuda", gpu_share=0.25)) == []
    assert errors(asked(code, device="auto", gpu_share=0.25)) == []
    hint = "omit it, or give cuda as device"
    assert errors(asked(code, device="auto", gpu_share=0.25), cpu_machine(2)) == [
        ("gpu_share", "shares GPUs, but the device of the job is cpu", hint)
    ]
