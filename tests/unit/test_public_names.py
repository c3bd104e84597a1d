import subprocess
import sys

import pytest

import rekindle

ASK = """
import sys, {module}
heavy = sorted(name for name in ("torch", "numpy", "torchvision", "torchmetrics") if name in sys.modules)
sys.exit(" ".join(heavy) or 0)
"""


@pytest.mark.parametrize(
    "module", ["rekindle", "rekindle.training", "rekindle.recipes.catalog", "rekindle.training.reporter"]
)
def test_importing_loads_no_torch(module):
    ended = subprocess.run(
        [sys.executable, "-c", ASK.format(module=module)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_every_public_name_is_listed_with_its_module():
    assert set(rekindle.__all__) == set(rekindle._MODULES)
    assert set(rekindle.__all__) <= set(dir(rekindle))


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"no attribute 'Runn'; it has DDPStrategy, .*Run, "):
        _ = rekindle.Runn
