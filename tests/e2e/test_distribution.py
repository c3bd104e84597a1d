"""The files to publish: what wheel and sdist contain, and a server from the wheel with its base dependencies."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest

from cli_process import environment
from doc_pages import ROOT
from e2e.serve_process import ServeProcess

pytest.importorskip("build", reason="build is not installed: pip install '.[test]'")
pytest.importorskip("twine", reason="twine is not installed: pip install '.[test]'")

MAX_BYTES = 130_000_000  # of the base install
SCRIPT = "import torch\nfrom rekindle import Run, report\nreport(loss=0.5)\nprint('trained')\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the sdist, and the wheel that is built from it."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT))
    return directory


def run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def contents(files: Path) -> Iterator[tuple[str, bytes]]:
    """Name, without the directory of the sdist, and content of each file in both."""
    with zipfile.ZipFile(next(files.glob("*.whl"))) as wheel:
        yield from ((name, wheel.read(name)) for name in wheel.namelist())
    with tarfile.open(next(files.glob("*.tar.gz"))) as sdist:
        for member in sdist.getmembers():
            if (file := sdist.extractfile(member)) is not None:
                yield member.name.partition("/")[2], file.read()


def test_wheel_and_sdist_pass_the_check_of_the_index(files: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files.iterdir()))


def test_they_have_the_packages_whole_and_no_test_or_path_of_this_machine(files: Path) -> None:
    found = dict(contents(files))
    listing = run("git", "ls-files", "-z", "service", "worker", cwd=ROOT).split("\0")
    sources = {name for name in filter(None, listing) if (ROOT / name).is_file()}
    assert sources - found.keys() == set(), "missing in the sdist"
    assert {name.partition("/")[2] for name in sources} - found.keys() == set(), "missing in the wheel"
    assert [name for name in found if re.search(r"(^|/)(tests?|__pycache__)/|test_\w+\.py$", name)] == []
    for place in {str(ROOT), str(Path.home())} - {"/", "/root"}:
        assert [name for name, content in found.items() if place.encode() in content] == []


def test_the_base_install_has_no_torch_and_the_extras_that_the_documentation_names(files: Path) -> None:
    found = dict(contents(files))
    metadata = message_from_bytes(next(text for name, text in found.items() if name.endswith("dist-info/METADATA")))
    assert (metadata["Name"], metadata["Requires-Python"]) == ("rekindle-torchrun", ">=3.11")
    assert {"recipes", "ecosystem", "test"} <= set(metadata.get_all("Provides-Extra", []))
    base = {each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each}
    assert [each for each in base if re.match("torch|nvidia-cu|scikit|safetensors", each)] == []
    assert f"rekindle_torchrun-{metadata['Version']}.dist-info/entry_points.txt" in found


def test_the_wheel_serves_and_submits_with_the_base_dependencies_alone(files: Path, tmp_path: Path, home: Path) -> None:
    prefix, code = tmp_path / "base", tmp_path / "code"
    run(sys.executable, "-m", "venv", str(prefix))
    python = str(prefix / "bin" / "python")
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", str(next(files.glob("*.whl"))))
    packages = next(prefix.glob("lib/python*/site-packages"))
    copy_packages(required(), packages)
    assert sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) < MAX_BYTES
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    rekindle, shell = str(prefix / "bin" / "rekindle"), environment(home, PATH="/usr/bin:/bin")
    demo = subprocess.run([rekindle, "demo"], env=environment(tmp_path / "demo"), capture_output=True, check=False)
    assert (demo.returncode, (tmp_path / "demo").exists()) == (2, False)
    assert "-m pip install torch torchvision" in " ".join(demo.stderr.decode().split())
    with ServeProcess(home, under=["/bin/sh", "-c", f'shift; exec {python} "$@"', "sh"]):
        refused = subprocess.run(
            [rekindle, "submit", "train.py"], cwd=code, env=shell, capture_output=True, check=False
        )
        assert refused.returncode == 2
        assert python in "".join(refused.stderr.decode().split())
        words = ["submit", "--python", sys.executable, "--ranks", "2", "--follow", "train.py"]
        assert "trained" in run(rekindle, *words, cwd=code, env=shell, timeout=200)


def copy_packages(names: Iterable[str], target: Path) -> None:
    for found in map(distribution, names):
        for entry in {each.parts[0] for each in found.files or ()} - {"..", "__pycache__"}:
            source = Path(str(found.locate_file(entry)))
            if source.is_dir():
                shutil.copytree(source, target / entry, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, target / entry)


def required() -> set[str]:
    """The base dependencies and theirs, of the distribution that is installed for the tests or of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    waiting = list(project["dependencies"])
    while waiting:
        requirement = waiting.pop()
        name = re.match(r"[\w.-]+", requirement)[0]  # type: ignore[index]
        if "extra ==" in requirement or name.lower() in found:
            continue
        try:
            waiting += distribution(name).requires or []
        except ModuleNotFoundError:  # needed by another Python or system
            continue
        found.add(name.lower())
    return found
