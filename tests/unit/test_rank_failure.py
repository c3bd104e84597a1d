"""The line of an exception that matters is kept, wherever it stands."""

import argparse
import pickle
from pathlib import Path

import pytest

from rekindle.rank.failure import describe

QUOTED = """Traceback (most recent call last):
  File "/lib/torch/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
  File "{code}/model.py", line 12, in train
    raise ValueError("boom")
ValueError: boom
"""


class ProcessRaisedException(Exception):  # noqa: N818  # torch's name
    """The same as torch.multiprocessing's."""


def described(error, code, stderr=None):
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001  # SystemExit too
        return describe(1, raised, code, stderr)


def test_the_exception_of_a_spawned_process_is_named_with_its_own_line(tmp_path):
    message = "\n\n-- Process 1 terminated with the following error:\n" + QUOTED.format(code=tmp_path)
    found = described(ProcessRaisedException(message), tmp_path)
    assert (found.exception, found.file, found.line) == ("ValueError", "model.py", 12)
    assert found.message.splitlines()[0] == "Process 1 terminated with the following error: ValueError: boom"


def test_the_exception_of_a_data_loaders_worker_is_named_with_its_own_line(tmp_path):
    message = "Caught ValueError in DataLoader worker process 0.\nOriginal " + QUOTED.format(code=tmp_path)
    found = described(ValueError(message), tmp_path)
    assert (found.exception, found.file, found.line) == ("ValueError", "model.py", 12)
    assert found.message.splitlines()[0] == "Caught ValueError in DataLoader worker process 0: ValueError: boom"


def test_the_exceptions_that_were_being_handled_are_recorded_with_their_lines_and_no_endless_chain(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("try:\n    int('x')\nfinally:\n    [][1]\n")
    with pytest.raises(IndexError) as raised:
        exec(compile(script.read_text(), str(script), "exec"))  # noqa: S102  # a script's lines
    found = describe(1, raised.value, tmp_path)
    assert (found.exception, found.line, found.context.exception, found.context.line) == (
        "IndexError",
        4,
        "ValueError",
        2,
    )
    assert "ValueError" in found.traceback
    assert found.context.traceback == ""
    raised.value.__suppress_context__ = True
    assert describe(1, raised.value, tmp_path).context is None
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    names, record = [], describe(1, first, tmp_path)
    while record := record.context:
        names.append(record.message)
    assert names == ["second", "first", "second", "first"]


@pytest.mark.parametrize("quoted", ["Traceback (most recent call last):\n", "x\nTraceback (most recent call last):\n"])
def test_a_quoted_traceback_that_is_cut_off_is_only_text(tmp_path, quoted):
    assert described(ValueError(quoted), tmp_path).message == quoted


def test_the_error_of_the_unpickler_comes_first(tmp_path):
    message = (
        "Weights only load failed. This file can still be loaded, to do so you have two options.\n"
        "\tWeightsUnpickler error: Unsupported global: GLOBAL numpy.core.multiarray.scalar was not an allowed global\n"
    )
    first_line = described(pickle.UnpicklingError(message), tmp_path).message.splitlines()[0]
    assert first_line.startswith("WeightsUnpickler error: Unsupported global: GLOBAL numpy")


def test_arguments_that_argparse_rejects_are_reported_in_its_own_words(tmp_path, capfd):
    parser = argparse.ArgumentParser(prog="train.py")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--lrr", "3"])
    stderr = tmp_path / "stderr.log"
    stderr.write_text(capfd.readouterr().err)
    found = described(ended.value, tmp_path, stderr)
    assert (found.exit_code, found.message) == (2, "train.py: error: unrecognized arguments: --lrr 3")


def test_an_exit_without_such_a_line_keeps_its_code(tmp_path):
    assert described(SystemExit(3), tmp_path, Path(tmp_path / "none")).message == "3"
