"""The faults of `rekindle chaos` are decided before the first one, and one seed always decides the same."""

from random import Random

import pytest
import typer

from rekindle.contract.run_dir.control_messages import RANK_FAULTS, Fault
from rekindle_service.cli.fault_run import KNOWN_FAULTS, ChaosOptions, PlannedFault, parse_fault, plan_faults


def plan(world_size: int = 2, seed: int = 1, **options: object) -> list[PlannedFault]:
    return plan_faults(ChaosOptions(**options), world_size, Random(seed))


def test_faults_repeat_in_the_given_order_up_to_the_count_and_without_options_one_rank_is_killed() -> None:
    assert plan() == [PlannedFault("kill", None, 0.0)]
    assert [one.fault for one in plan(faults=["kill", "agent"])] == ["kill", "agent"]
    assert [one.fault for one in plan(faults=["kill", "agent"], count=3)] == ["kill", "agent", "kill"]
    assert [one.fault for one in plan(faults=["kill", "agent"], count=1)] == ["kill"]


def test_a_rank_is_used_only_for_faults_that_target_one_and_must_exist() -> None:
    faults = [fault.value for fault in Fault] + ["server"]
    targets = {one.fault: one.rank for one in plan(faults=faults, rank=1)}
    assert {fault for fault, rank in targets.items() if rank == 1} == {*RANK_FAULTS, "corrupt-snapshot"}
    for rank in (2, 100):
        with pytest.raises(typer.BadParameter, match=f"--rank {rank}: the last rank of the job is 1"):
            plan(rank=rank)


def test_one_seed_always_schedules_the_same() -> None:
    options = {"random": True, "count": 50, "every": 2.0}
    assert plan(seed=3, **options) == plan(seed=3, **options)
    assert plan(seed=3, **options) != plan(seed=4, **options)


def test_random_faults_cover_every_fault_and_rank_but_the_server_only_on_request() -> None:
    drawn = plan(world_size=3, random=True, count=500)
    assert {one.fault for one in drawn} == {fault.value for fault in Fault}
    assert {one.rank for one in drawn if one.fault in RANK_FAULTS} == {0, 1, 2}
    assert all(0 <= one.delay <= 6 for one in drawn)
    assert {one.fault for one in plan(random=True, count=100, faults=["server", "kill"])} == {"server", "kill"}
    assert {one.rank for one in plan(random=True, count=20, faults=["kill"], rank=1)} == {1}, "a given rank stays"


def test_an_unknown_fault_is_rejected_with_the_known_ones() -> None:
    assert parse_fault("server") == "server"
    with pytest.raises(typer.BadParameter, match="unknown fault 'explode'; known: kill, stop, crash") as rejected:
        parse_fault("explode")
    assert all(name in str(rejected.value) for name in KNOWN_FAULTS)
