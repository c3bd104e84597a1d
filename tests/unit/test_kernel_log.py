"""Which messages of NVIDIA's driver concern an attempt, by their time and the GPUs that they name."""

import pytest

from rekindle.keeper.rank_processes import kernel_log

_LINES = [
    "4,1,900000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "4,2,1100000000,-;NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.",
    "4,3,1200000000,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=python, DBE",
    "4,4,1300000000,-;NVRM: the driver says something of no GPU",
    "4,5,1400000000,-;another driver",
]


@pytest.mark.parametrize(
    ("bus_ids", "expected"), [(None, [1, 2, 3]), ({"0000:3b:00"}, [2, 3]), ({"0000:9b:00"}, [1, 3]), (set(), [3])]
)
def test_messages_of_an_attempt_are_those_since_its_start_about_its_own_gpus(monkeypatch, bus_ids, expected):
    monkeypatch.setattr(kernel_log, "kernel_log", lambda: _LINES)
    wanted = [_LINES[number].partition(";")[2] for number in expected]
    assert kernel_log.driver_messages(1000.0, bus_ids) == wanted
