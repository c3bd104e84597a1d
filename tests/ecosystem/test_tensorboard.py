"""Files written by TensorBoard itself are read as they are."""

import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.observers.tensorboard import TensorBoardImport
from rekindle_service.run_readers.metric_series import read_attempt_series

WRITER = """
import sys, torch
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter(sys.argv[1])
for step in range(200):
    writer.add_scalar("loss", 1 / (step + 1), step)
writer.add_scalar("tensor", 0.25, 1, new_style=True)
writer.add_scalar("double", 0.1, 1, new_style=True, double_precision=True)
writer.add_scalar("nan", float("nan"), 1)
writer.add_scalar("too/large", 1e308, 1)
writer.add_histogram("weights", torch.randn(1000), 1)
writer.add_text("text", "<script>alert(1)</script>", 1)
writer.add_image("picture", torch.rand(3, 1000, 1000), 1)
writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 1)
writer.add_scalar("last", 1.0, 2)
writer.close()
"""


@pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="needs tensorboard, of the extra rekindle-torchrun[ecosystem]"
)
def test_what_a_summary_writer_writes_is_in_the_metrics(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.attempt(1).root.mkdir(parents=True)
    log = TensorBoardImport(run_dir.attempt(1).scalars, (run_dir.code,))
    subprocess.run([sys.executable, "-c", WRITER, str(run_dir.code / "runs")], check=True, capture_output=True)
    log.finish([])
    series = read_attempt_series(run_dir, 1, names=None, max_points=2000)
    assert [point.value for point in series["loss"]] == [pytest.approx(1 / (step + 1), rel=1e-6) for step in range(200)]
    values = {name: [point.value for point in points] for name, points in series.items() if name != "loss"}
    both = {"both_a/both": [1.0], "both_b/both": [2.0]}
    assert values == {"tensor": [0.25], "double": [0.1], "nan": [None], "too/large": [None], "last": [1.0], **both}
    assert math.isclose(series["loss"][0].at, series["last"][0].at, abs_tol=600)
