import json

from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.job_options import SlurmOptions, TargetKind
from rekindle.contract.states import JobIntent

LOCAL = JobSpec("n", TargetKind.SCRIPT, "t.py", "/p", min_ranks=1, max_ranks=4)
CLUSTER = JobSpec(
    "n", TargetKind.SCRIPT, "t.py", "/p", min_ranks=2, max_ranks=6, nodes=3,
    slurm=SlurmOptions(partition="gpu", time="1-00:00:00", extra=["--mem=32G"]),
)  # fmt: skip


def test_a_spec_comes_back_as_it_was_written_with_as_many_ranks_on_each_node():
    for spec, ranks_per_node in ((LOCAL, 4), (CLUSTER, 2)):
        read = JobSpec.from_json(json.loads(json.dumps(spec.to_json())))
        assert read == spec
        assert read.ranks_per_node == ranks_per_node


def test_a_spec_of_before_nodes_is_one_of_this_machine():
    value = {key: item for key, item in LOCAL.to_json().items() if key not in ("nodes", "min_nodes", "slurm")}
    spec = JobSpec.from_json(value)
    assert (spec.slurm, spec.nodes, spec.min_nodes, spec.ranks_per_node) == (None, 1, 1, 4)


def test_an_intent_of_before_launches_is_one_of_this_machine():
    value = RunIntent(JobIntent.RUN, 1, ["cpu:0"]).to_json()
    del value["launch"], value["host_timeout"]
    assert RunIntent.from_json(value) == RunIntent(JobIntent.RUN, 1, ["cpu:0"], launch=0, host_timeout=60.0)
