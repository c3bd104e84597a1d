"""`rekindle diff` in words: the verdict first, then what differs, then the next command."""

from typing import Any

import pytest

from rekindle_service.cli.commands.diff_command import diff_lines, split_reference
from rekindle_service.cli.commands.diff_replay import first_difference

SUMMARY = "First difference: step 1,300, gradients of fc.weight (and 3 more) on rank 1; equal up to step 1,200."


def answer(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "verdict": "different", "summary": SUMMARY, "notes": ["The difference began in one of the steps."],
        "equal_steps": 12, "last_equal_step": 1200, "difference": {"step": 1300}, "logged": [],
        "causes": [{"kind": "code", "text": "code: train.py changed"}],
        "code": [{"path": "train.py", "change": "changed", "diff": "--- \n+++ \n@@ -1 +1 @@\n-a\n+b"}],
        "next_command": "rekindle diff 12 13 --replay",
    }  # fmt: skip
    return fields | changes


def test_the_verdict_comes_first_and_the_next_command_last() -> None:
    assert list(diff_lines(answer())) == [
        SUMMARY,
        "The difference began in one of the steps.",
        "The jobs differ in:",
        "  code: train.py changed",
        "    --- train.py",
        "    @@ -1 +1 @@",
        "    -a",
        "    +b",
        "Find the step: rekindle diff 12 13 --replay",
    ]


def test_identical_jobs_are_one_line() -> None:
    identical = answer(summary="Identical over 5.", notes=[], causes=[], code=[], next_command=None, difference=None)
    assert list(diff_lines(identical)) == ["Identical over 5."]


def layers(*changed: str, samples: tuple[int, ...] = (1, 2), without: int = 0) -> Any:
    names = [("batch", "0"), ("forward", "fc"), ("backward", "fc"), ("gradient", "fc.weight"), ("parameter", "")]
    records = [
        {"phase": phase, "name": name, "norm": 1.5, "digest": "b" if phase in changed else "a"} for phase, name in names
    ]
    return {"samples": list(samples), "tensors": records[: len(records) - without]}


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (layers(), None),
        (layers(samples=(2, 1)), "data, order of the samples"),
        (layers("forward", "batch"), "data, tensor 0 of the batch (norms 1.5 and 1.5)"),
        (layers("forward", "gradient"), "forward, output of fc (norms 1.5 and 1.5)"),
        (layers("backward", "gradient"), "backward, gradient of the output of fc (norms 1.5 and 1.5)"),
        (layers("gradient", "parameter"), "all-reduce, gradient of fc.weight (norms 1.5 and 1.5)"),
        (layers("parameter"), "optimizer, the model (norms 1.5 and 1.5)"),
        (layers(without=1), "optimizer, the model"),
    ],
)
def test_the_first_tensor_of_a_step_that_differs_is_named_with_its_phase(other: Any, place: str | None) -> None:
    for one, two in ((layers(), other), (other, layers())):
        found = first_difference(one, two)
        assert (None if found is None else found[2]) == place


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("12@1", ("12", 1)),
        ("my@job@2", ("my@job", 2)),
        ("digits", ("digits", None)),
        ("a@b", ("a@b", None)),
        ("@3", ("@3", None)),
        ("#12@10", ("#12", 10)),
    ],
)
def test_an_attempt_is_named_after_the_job(reference: str, parts: tuple[str, int | None]) -> None:
    assert split_reference(reference) == parts
