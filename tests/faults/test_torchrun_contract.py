"""The facts about torch that the keeper stands on: a release of torch that changes one must be noticed here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rekindle.keeper.torchrun.agent_launcher
from rekindle.contract.environment import clean_environment
from rekindle.keeper.torchrun import preload

_RANK = """
import json, os, sys, time
from pathlib import Path
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
seen = {name: os.environ.get(name) for name in names}
seen["parent"] = os.getppid()
seen["forked"] = "torch" in sys.modules
with (Path(os.environ["OUT"]) / f"rank-{os.environ['RANK']}.jsonl").open("a") as file:
    file.write(json.dumps(seen) + "\\n")
if os.environ.get("FAIL") == os.environ["RANK"]:
    while not (Path(os.environ["OUT"]) / "rank-0.jsonl").exists():  # torchrun stops it at once
        time.sleep(0.01)
    sys.exit(17)
"""


def launch(
    directory: Path, *, warm: bool, **environment: str
) -> tuple[subprocess.CompletedProcess[str], int, list[list]]:
    """Run two ranks with the keeper's own arguments: how torchrun ended, its pid, and what each rank has seen."""
    script = directory / "rank.py"
    script.write_text(_RANK)
    argv = rekindle.keeper.torchrun.agent_launcher.torchrun_argv(
        world_size=2, rendezvous_id="contract.1", log_dir=directory / "logs", warm=warm
    )
    argv = argv[: argv.index("--run-path" if warm else "-m")] + (["--run-path"] if warm else []) + [str(script)]
    own = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1", "OUT": str(directory), **environment}
    with subprocess.Popen(
        [sys.executable, "-m", "rekindle.keeper.agent", str(os.getpid()), *argv],
        cwd=directory, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as agent:  # fmt: skip
        output, _ = agent.communicate(timeout=120)
    files = [directory / f"rank-{rank}.jsonl" for rank in (0, 1)]
    seen = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    return subprocess.CompletedProcess(agent.args, agent.returncode, output), agent.pid, seen


@pytest.mark.parametrize("warm", [True, False])
def test_ranks_are_the_agents_own_children_and_know_their_place(tmp_path, warm):
    ended, agent, seen = launch(tmp_path, warm=warm)
    assert ended.returncode == 0, ended.stdout
    for rank, (only,) in enumerate(seen):
        place = {name: only[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
        assert place == {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        assert only["MASTER_PORT"]
        assert only["MASTER_ADDR"]
        assert only["parent"] == agent
        assert only["forked"] is warm, "warm ranks have what their agent has imported, cold ones do not"


@pytest.mark.parametrize("warm", [True, False])
def test_torchrun_restarts_nothing_and_ends_with_1_where_a_rank_failed(tmp_path, warm):
    ended, _, seen = launch(tmp_path, warm=warm, FAIL="1", PET_MAX_RESTARTS="3")
    assert ended.returncode == 1
    assert "17" in ended.stdout
    assert [len(starts) for starts in seen] == [1, 1]


_PRELOADED = """
import os, sys
from pathlib import Path
from rekindle.contract.job import JobSpec
from rekindle.keeper.torchrun.preload import preload
spec = JobSpec(name="x", kind="script", target="train.py", python=sys.executable, device="cpu",
               min_ranks=1, max_ranks=1)
before = dict(os.environ)
failed = preload(spec, Path(sys.argv[1]))
import torch
print(failed, len(os.listdir("/proc/self/task")), torch.cuda.is_initialized(), dict(os.environ) == before,
      [path for path in sys.path if path.startswith(sys.argv[1])], "trap" in sys.modules)
"""


def test_what_is_preloaded_starts_no_thread_touches_no_device_and_runs_nothing_of_the_users(tmp_path):
    imports = ("numpy", "torch", "torchvision", "torchmetrics", "sklearn.datasets", "torch.distributed", "trap")
    (tmp_path / "train.py").write_text("".join(f"import {name}\n" for name in imports))
    (tmp_path / "trap.py").write_text("raise SystemExit('the keeper has run the code of a user')\n")
    (tmp_path / "numpy.py").write_text("raise SystemExit('the keeper has run the code of a user')\n")
    assert _python(_PRELOADED, str(tmp_path), cwd=tmp_path) == "[] 1 False True [] False"


_FORKED = """
import importlib, os, sys, torch
from rekindle.keeper.agent import without_accelerators
def child_is_bad():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, b"bad" if torch.cuda._is_in_bad_fork() else b"good")
        os._exit(0)
    os.wait()
    return os.read(reader, 4).decode()
for name in sys.argv[1:]:
    importlib.import_module(name)
    print(name, child_is_bad())
from torch.distributed.launcher.api import LaunchConfig
make = lambda: LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2)
with without_accelerators():
    make()
print("without accelerators", child_is_bad())
make()
print("torchrun alone", child_is_bad())
"""


def test_nothing_in_a_parent_of_ranks_makes_cuda_unusable_in_its_forks():
    modules = [*preload._ALWAYS, "torchvision", "torchmetrics", "sklearn.datasets", "rekindle.training.run"]
    seen = dict(line.rsplit(maxsplit=1) for line in _python(_FORKED, *modules).splitlines())
    assert seen.pop("torchrun alone") == "bad", "torch has become harmless: remove without_accelerators"
    assert set(seen.values()) == {"good"}, seen


def _python(code: str, *arguments: str, cwd: Path | None = None) -> str:
    own = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-P", "-c", code, *arguments]
    ended = subprocess.run(argv, cwd=cwd, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
