"""Digests name the steps, the rank and the tensor of one flipped bit, and nothing where no bit has flipped."""

import json
import re

import pytest

from faults.faulty_run import SCRIPTS
from plain_torchrun import torchrun

SCRIPT = "flipped.py"


def assert_named(output: str, trainings: int) -> None:
    results = [json.loads(line) for line in output.splitlines() if line.startswith('{"way"')]
    assert len(results) == 2 * trainings
    for each in results:
        if not each["flipped"]:
            assert each["found"] is None, each
            continue
        found = re.search(r"steps? (\d+)(?: to (\d+))?: rank (\d+), (\w+) of (\S+?)[,;]", f"{each['found']};")
        assert found, each
        first, last = int(found[1]), int(found[2] or found[1])
        assert first <= each["step"] <= last <= first + 3, each
        assert (int(found[3]), found[5]) == (each["rank"], each["name"])


def test_a_flipped_bit_is_named_with_its_rank_and_tensor(tmp_path):
    ended = torchrun(3, [str(SCRIPTS / SCRIPT), "--ways", "ddp", "--times", "1"], tmp_path)
    assert ended.code == 0, ended.output
    assert_named(ended.output, 1)


def test_ranks_whose_records_grow_at_different_rates_become_rarer_together(tmp_path):
    ended = torchrun(2, [str(SCRIPTS / "rarer.py")], tmp_path)
    assert ended.code == 0, ended.output
    found = [json.loads(line) for line in ended.output.splitlines() if line.startswith('{"rank"')]
    one, other = (each["steps"] for each in found)
    assert one == other
    assert 5 < len(one) < 30


@pytest.mark.long
@pytest.mark.parametrize("way", ["ddp", "amp", "accumulate", "elastic"])
def test_flipped_bits_are_named_and_clean_trainings_are_not(tmp_path, way):
    ended = torchrun(3, [str(SCRIPTS / SCRIPT), "--ways", way, "--times", "5", "--seed", "1"], tmp_path)
    assert ended.code == 0, ended.output
    assert_named(ended.output, 5)
