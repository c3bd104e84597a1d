"""The faults of `rekindle chaos` are decided before the first one strikes, and the same seed decides the same."""

from random import Random

import pytest
import typer

from rekindle.contract.chaos import RANK_FAULTS, Fault
from rekindle_service.cli.fault_plan import KNOWN, Strike, Wish, known_fault, strikes


def plan(world_size: int = 2, seed: int = 1, **wish: object) -> list[Strike]:
    return strikes(Wish(**wish), world_size, Random(seed))


def test_without_a_wish_one_rank_is_killed() -> None:
    assert plan() == [Strike("kill", None, 0.0)]


def test_faults_strike_in_the_order_given_over_and_over_up_to_the_count() -> None:
    assert [one.fault for one in plan(faults=["kill", "agent"])] == ["kill", "agent"]
    assert [one.fault for one in plan(faults=["kill", "agent"], count=3)] == ["kill", "agent", "kill"]
    assert [one.fault for one in plan(faults=["kill", "agent"], count=1)] == ["kill"]


def test_a_rank_goes_only_with_faults_that_strike_one() -> None:
    faults = [fault.value for fault in Fault] + ["server"]
    struck = {one.fault: one.rank for one in plan(faults=faults, rank=1)}
    assert {fault for fault, rank in struck.items() if rank == 1} == {*RANK_FAULTS, "corrupt-snapshot"}


@pytest.mark.parametrize("rank", [2, 100])
def test_a_rank_that_the_job_does_not_have_is_refused(rank: int) -> None:
    with pytest.raises(typer.BadParameter, match=f"--rank {rank}: the job has 2 ranks, 0 to 1"):
        plan(rank=rank)


def test_chance_draws_the_same_from_the_same_seed() -> None:
    wish = {"random": True, "count": 50, "every": 2.0}
    assert plan(seed=3, **wish) == plan(seed=3, **wish)
    assert plan(seed=3, **wish) != plan(seed=4, **wish)


def test_chance_draws_every_fault_and_rank_but_never_the_server_unasked() -> None:
    drawn = plan(world_size=3, random=True, count=500)
    assert {one.fault for one in drawn} == {fault.value for fault in Fault}
    assert {one.rank for one in drawn if one.fault in RANK_FAULTS} == {0, 1, 2}
    assert all(0 <= one.pause <= 6 for one in drawn)
    assert {one.fault for one in plan(random=True, count=100, faults=["server", "kill"])} == {"server", "kill"}


def test_a_wanted_rank_is_not_left_to_chance() -> None:
    assert {one.rank for one in plan(random=True, count=20, faults=["kill"], rank=1)} == {1}


def test_an_unknown_fault_is_answered_with_the_known_ones() -> None:
    assert known_fault("server") == "server"
    with pytest.raises(typer.BadParameter, match="no fault 'explode'; known: kill, stop, crash") as refused:
        known_fault("explode")
    assert all(name in str(refused.value) for name in KNOWN)
