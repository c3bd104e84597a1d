"""The recorders of the installed torch, filled by collectives of groups that only have the names of NCCL's backends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.debug_server import Answer, dump, served
from rekindle.contract.environment import clean_environment
from rekindle.contract.rank_traces import HOOKED_RECORDERS, collective_history, collectives
from rekindle.contract.run_dir.paths import RankDir

_DUMPS = """
import json, sys, torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d

class Named(c10d.Backend):
    def __init__(self, name, store, rank, size, timeout):
        super().__init__(rank, size)
        self._name, self._gloo = name, c10d.ProcessGroupGloo(store, rank, size, timeout=timeout)
    def getBackendName(self):
        return self._name
    def allreduce(self, tensors, options=None):
        return self._gloo.allreduce(tensors, options)
    def broadcast(self, tensors, options=None):
        return self._gloo.broadcast(tensors, options)

names = sys.argv[1:]
for number, name in enumerate(names):
    make = lambda *group, name=name: Named(name, *group)
    dist.Backend.register_backend(f"pretended{number}", make, devices=["cpu"])
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
for number, name in enumerate(names):
    group = dist.new_group(backend=f"pretended{number}")
    dist.all_reduce(torch.ones(3, 2), group=group)
    dist.broadcast(torch.ones(5), 0, group=group)
dumps = {name: c10d._dump_fr_trace_json(True, False, name).decode() for name in ["gloo", *names]}
print(json.dumps({**dumps, "legacy": c10d._dump_nccl_trace_json(True, False).decode()}))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def dumps() -> dict[str, str]:
    argv = [sys.executable, "-P", "-c", _DUMPS, *HOOKED_RECORDERS]
    ended = subprocess.run(argv, env=clean_environment(os.environ), capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def test_the_collectives_of_each_backend_are_read_from_its_own_recorder(
    dumps: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RankDir(tmp_path)
    answers = {f"backend={name}": dumps[name].encode() for name in HOOKED_RECORDERS}
    answers |= {"dump_nccl_trace_json": dumps["legacy"].encode(), "fr_trace_json": dumps["gloo"].encode()}
    monkeypatch.setattr(Answer, "by_request", answers)
    with served(directory):
        found = collectives(directory, on_gpu=True)
        known = [(each.group, each.operation, each.shape) for each in collective_history(directory, on_gpu=True)]
    assert found is not None
    assert found.knows_gpu
    operations = [("all_reduce", "[[3, 2]] Float"), ("broadcast", "[[5]] Float")]
    names = [f"{group} ({name})" for group, name in enumerate(HOOKED_RECORDERS, 1)]
    assert [each for each in known if each[0] in names] == [(name, *each) for name in names for each in operations]
    assert ("0", "all_reduce", "[[3]] Float") in known


def test_the_stand_in_answers_in_the_form_of_torch(dumps: dict[str, str]) -> None:
    pretended = json.loads(dump((1, "nccl2:all_reduce", True), last=1))
    for name in ("gloo", *HOOKED_RECORDERS):
        real = json.loads(dumps[name])
        assert pretended.keys() <= real.keys()
        assert all(pretended["entries"][0].keys() <= entry.keys() for entry in real["entries"])
        assert all("last_enqueued_collective" in status for status in real["pg_status"].values())
    assert json.loads(dumps["legacy"]).keys() <= json.loads(dumps["gloo"]).keys()
