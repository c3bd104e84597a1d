"""Which machine sends which file to which other one, so that each has the files of its ranks."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.contract.run_dir.snapshot_dir import SnapshotFile
from rekindle.training.snapshots.file_exchange import FileStream, Transfer, plan_transfers

NAMES = ["model.pt", "rank-0.pt", "rank-1.pt"]


def test_what_a_machine_has_is_not_sent_to_it():
    assert plan_transfers([0, 0, 1], {"model.pt": [0, 1]}, [["model.pt"], [], ["model.pt"]]) == []


def test_a_machine_passes_on_what_it_has_received():
    transfers = plan_transfers([0, 1, 2, 3], {"model.pt": [0]}, [[], ["model.pt"], ["model.pt"], ["model.pt"]])
    assert transfers == [
        Transfer("model.pt", 0, 1),
        Transfer("model.pt", 1, 2),
        Transfer("model.pt", 2, 3),
    ]


def test_a_file_that_no_machine_has_is_named():
    with pytest.raises(KeyError, match=r"rank-1\.pt"):
        plan_transfers([0, 1], {"model.pt": [0], "rank-1.pt": []}, [["model.pt"], ["rank-1.pt"]])


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8).map(sorted),
    st.data(),
)
def test_every_rank_gets_what_it_wants_from_one_that_has_it_by_then(nodes, data):
    machines = sorted(set(nodes))
    holders = {name: data.draw(st.lists(st.sampled_from(machines), min_size=1, unique=True)) for name in NAMES}
    wanted = [data.draw(st.lists(st.sampled_from(NAMES), unique=True)) for _ in nodes]
    having = {(name, rank) for name in NAMES for rank, node in enumerate(nodes) if node in holders[name]}
    for each in plan_transfers(nodes, holders, wanted):
        assert (each.name, each.source) in having
        assert nodes[each.source] != nodes[each.target]
        assert each.name in wanted[each.target]
        having.add((each.name, each.target))
    on_machine = {(name, nodes[rank]) for name, rank in having}
    assert all((name, node) in on_machine for node, names in zip(nodes, wanted, strict=True) for name in names)


@pytest.mark.parametrize(("content", "problem"), [(b"intact", None), (b"damage", "model.pt fails its checksum")])
def test_both_sides_notice_a_file_that_is_not_as_its_record_says(tmp_path, content, problem):
    (tmp_path / "model.pt").write_bytes(content)
    records = {"model.pt": SnapshotFile(6, hashlib.sha256(b"intact").hexdigest())}
    sent = FileStream(1, tmp_path, records)
    assert [bytes(message) for message in sent.buffers(sends=True)] == [content]
    received = FileStream(0, tmp_path, records)
    for buffer in received.buffers(sends=False):
        buffer[:] = content
    assert (sent.problem, received.problem) == (problem, problem)
