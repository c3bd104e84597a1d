"""What the README says is so."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import doc_pages
import file_tree
import generated_sections
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.main import app
from rekindle_service.states import JobState

README = generated_sections.README.read_text()
PAGES = doc_pages.pages()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "name"), generated_sections.SECTIONS, ids=lambda part: getattr(part, "name", part))
def test_a_section_is_as_the_code_has_it(page: Path, name: str) -> None:
    written = generated_sections.section(page, name)
    assert written.splitlines() == list(generated_sections.SECTIONS[page, name]()), "run `make generate`"


def parse(words: list[str]) -> None:
    """Read a command line as the program does, without carrying it out. Raises what the program would complain of."""
    group: Any = get_command(app)
    context = group.make_context("rekindle", list(words), resilient_parsing=False)
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, rest, parent=context)


def test_the_parser_of_shown_commands_refuses_what_the_program_refuses() -> None:
    for wrong in (["submit", "--no-such-option", "train.py"], ["no-such-command"], ["show"]):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parse(wrong)


@pytest.mark.parametrize("block", blocks("python"))
def test_a_shown_training_script_runs_as_it_stands_and_leaves_a_snapshot(block: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(block)
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


def test_the_tables_of_states_and_exit_codes_are_complete() -> None:
    for state in JobState:
        assert f"`{state}`" in README
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", README, flags=re.MULTILINE)}
    assert told == {int(code) for code in ExitCode}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(file_tree.ROOT)))
def test_links_and_pictures_lead_to_files_of_the_repository(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_service_units_leave_jobs_alone() -> None:
    for unit in (file_tree.ROOT / "deploy").glob("*.service"):
        lines = unit.read_text().splitlines()
        assert "KillMode=process" in lines
        assert "Restart=always" in lines
        command = next(line for line in lines if line.startswith("ExecStart=")).partition("/bin/rekindle ")[2]
        parse(shlex.split(command))


def test_constraints_name_a_version_each_and_no_place() -> None:
    for line in (file_tree.ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line), line


def test_nothing_tracked_names_a_folder_of_the_machine_it_was_written_on() -> None:
    home = str(file_tree.ROOT.parent)
    ordinary = home in ("/", tempfile.gettempdir())  # which any text may name
    for path in file_tree.tracked():
        text = (file_tree.ROOT / path).read_text(errors="replace")
        assert ordinary or f"{home}/" not in text, path
