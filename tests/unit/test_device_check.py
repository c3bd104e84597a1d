"""Is it the device? Every combination of what comparisons can show, and from which of them a device is found."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from digest_files import DigestWriter, series
from rekindle.contract.run_dir.digest_records import TensorKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.device_check import Bits, Finding, bits, decide, suspects
from rekindle_service.jobs.step_diff import compare_steps

EQUAL, COMPUTED, GIVEN, UNKNOWN = Bits
KNOWN = [EQUAL, UNKNOWN]  # of the original: nothing speaks against the replays
DIFFERS = [COMPUTED, GIVEN]
TWICE = [*Bits, None]


def test_a_device_is_found_by_exactly_one_pattern_of_all() -> None:
    found = {
        (original, same, across, other, others)
        for original, same, across, other, others in product(Bits, TWICE, TWICE, TWICE, (0, 1, 2))
        if decide(original, same, across, other, others=others) is Finding.DEVICE
    }
    assert found == {(original, EQUAL, COMPUTED, EQUAL, 2) for original in KNOWN}
    assert {decide(original, EQUAL, COMPUTED, EQUAL, others=1) for original in KNOWN} == {Finding.ONE_OF_TWO}


@pytest.mark.parametrize("original", Bits)
def test_equal_replays_speak_for_the_script_unless_the_original_differs(original: Bits) -> None:
    first = Finding.SCRIPT if original in KNOWN else Finding.TRANSIENT
    alone = Finding.NO_OTHER if original in KNOWN else Finding.TRANSIENT
    for same, other in product(TWICE, TWICE):
        assert decide(original, same, EQUAL, other, others=2) is first
    assert decide(original, EQUAL, None, None, others=0) is alone


@pytest.mark.parametrize("original", Bits)
@pytest.mark.parametrize("across", DIFFERS)
def test_other_bits_elsewhere_need_two_more_replays_that_agree(original: Bits, across: Bits) -> None:
    assert decide(original, None, across, None, others=2) is None
    assert decide(original, EQUAL, across, None, others=2) is None
    for same, other in product(Bits, Bits):
        found = decide(original, same, across, other, others=2)
        if UNKNOWN in (same, other):
            assert found is Finding.INCOMPLETE
        elif (same, across, other) == (EQUAL, COMPUTED, EQUAL) and original in KNOWN:
            assert found is Finding.DEVICE
        else:
            assert found is Finding.NOT_DETERMINISTIC


@pytest.mark.parametrize("original", Bits)
def test_without_comparable_replays_nothing_is_decided(original: Bits) -> None:
    for same, other in product(TWICE, TWICE):
        assert decide(original, same, UNKNOWN, other, others=2) is Finding.INCOMPLETE
    assert decide(original, UNKNOWN, None, None, others=0) is Finding.INCOMPLETE
    for same in DIFFERS:
        assert decide(original, same, None, None, others=0) is Finding.NOT_DETERMINISTIC


@pytest.fixture
def one(tmp_path: Path) -> DigestWriter:
    return DigestWriter(RunDir(tmp_path / "one"))


@pytest.fixture
def other(tmp_path: Path) -> DigestWriter:
    return DigestWriter(RunDir(tmp_path / "other"))


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (None, {}, EQUAL),
        (TensorKind.GRADIENTS, {}, COMPUTED),
        (TensorKind.OPTIMIZER, {}, COMPUTED),
        (TensorKind.PARAMETERS, {}, COMPUTED),
        (TensorKind.GRADIENTS, {"parts": "x"}, COMPUTED),
        (TensorKind.PARAMETERS, {"parts": "x"}, GIVEN),
        (None, {"parts": "x"}, GIVEN),
        (TensorKind.GRADIENTS, {"batch": "x"}, GIVEN),
        (TensorKind.GRADIENTS, {"random": "x"}, GIVEN),
        (TensorKind.GRADIENTS, {"order": "x"}, UNKNOWN),
    ],
)
def test_what_a_step_computes_from_is_distinguished_from_what_it_computes(
    one: DigestWriter, other: DigestWriter, kind: TensorKind | None, fields: dict[str, Any], expected: Bits
) -> None:
    one.write([11, 12, 13])
    changed = other.record(13, 0) if kind is None else other.tensors(13, 0, kind, 0)[13, 0]
    other.write([11, 12, 13], {(13, 0): replace(changed, **fields, logged={"loss": (9.0).hex()})})
    assert bits(compare_steps(series(one.run_dir, 2), series(other.run_dir, 2)), 13) is expected


def test_equal_steps_before_the_suspicious_one_prove_nothing(one: DigestWriter, other: DigestWriter) -> None:
    one.write([11, 12, 13])
    other.write([11, 12])
    found = compare_steps(series(one.run_dir, 2), series(other.run_dir, 2))
    assert (bits(found, 12), bits(found, 13)) == (EQUAL, UNKNOWN)


@pytest.mark.parametrize(("ranks", "devices"), [([1], ["b"]), ([0, 1], ["a", "b"])])
def test_a_device_is_named_only_where_its_rank_alone_differs(
    one: DigestWriter, other: DigestWriter, ranks: list[int], devices: list[str]
) -> None:
    changed = {}
    for rank in ranks:
        changed |= other.tensors(12, rank, TensorKind.PARAMETERS, 0)
    one.write([11, 12])
    other.write([11, 12], changed)
    found = compare_steps(series(one.run_dir, 2), series(other.run_dir, 2))
    assert bits(found, 12) is COMPUTED
    assert list(suspects(found, ["a", "b"])) == devices
    assert list(suspects(found, ["a", "b", "c", "d"])) == ["a", "b", "c", "d"], "several devices of each rank"
