"""README.md agrees with the code, and the pages of the documentation with the files of the repository."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from doc_pages import ROOT, Block, blocks, pages
from rekindle_service.cli.main import app


def parse(words: list[str]) -> None:
    """Parse a command line as the program does, without running it. Raises what the program would reject."""
    group: Any = get_command(app)
    context = group.make_context("rekindle", list(words), resilient_parsing=False)
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, rest, parent=context)


def test_the_parser_of_shown_commands_rejects_what_the_program_rejects() -> None:
    for wrong in (["submit", "--no-such-option", "train.py"], ["no-such-command"], ["show"]):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parse(wrong)


@pytest.mark.parametrize("block", blocks("python", "README.md"), ids=str)
def test_a_shown_training_script_runs_unchanged_and_takes_a_snapshot(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(block.text)
    snapshots = tmp_path / "snapshots"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REKINDLE_")}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**kept, "REKINDLE_SNAPSHOT_DIR": str(snapshots), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(snapshots.glob("*/manifest.json"))


def test_the_readme_is_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_links_and_pictures_point_to_files_of_the_repository() -> None:
    links = [(page, target) for page in pages() for target in re.findall(r"\]\(([^)#]+)\)", page.read_text())]
    missing = [
        (str(page), target)
        for page, target in links
        if not target.startswith("https://") and not (page.parent / target).exists()
    ]
    assert missing == []


def test_the_service_units_leave_jobs_alone() -> None:
    for unit in (ROOT / "deploy").glob("*.service"):
        lines = unit.read_text().splitlines()
        assert "KillMode=process" in lines
        assert "Restart=always" in lines
        command = next(line for line in lines if line.startswith("ExecStart=")).partition("/bin/rekindle ")[2]
        parse(shlex.split(command))


def test_constraints_name_a_version_each_and_no_url() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line), line


def test_no_tracked_file_names_a_directory_of_the_machine_it_was_written_on() -> None:
    home = str(ROOT.parent)
    if home in ("/", tempfile.gettempdir()):  # which any text may name
        pytest.skip("this checkout is in a directory that any text may name")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for path in filter(None, listing.split("\0")):
        assert f"{home}/" not in (ROOT / path).read_text(errors="replace"), path


def source_tree() -> Iterator[Path]:
    """The directories that the tree in docs/architecture.md names, relative to the root."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    (tree,) = re.findall(r"^### Source tree\n.*?^```text\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    above: list[Path] = []
    for indent, name in re.findall(r"^( *)(\S+)/ ", tree, flags=re.MULTILINE):
        depth = len(indent) // 2
        above[depth:] = [Path(*above[depth - 1 : depth], name)]
        yield above[-1]


def packages() -> Iterator[Path]:
    """The direct sub-packages of the two packages, and the directories of tests, relative to the root."""
    for parent in ("service/rekindle_service", "worker/rekindle", "tests"):
        for path in (ROOT / parent).iterdir():
            if any(file.is_file() and "__pycache__" not in file.parts for file in path.glob("**/*")):
                yield path.relative_to(ROOT)


def test_the_source_tree_names_existing_directories_and_every_package() -> None:
    named = set(source_tree())
    assert [path for path in sorted(named) if not (ROOT / path).is_dir()] == []
    assert set(packages()) - named == set()
