"""Which files are copied: patterns of the request, `.rekindleignore`, `.gitignore`; and links on request."""

from pathlib import Path

import pytest

from rekindle_service.jobs.packaging.code_copy import CodeCopyError, copy_code
from rekindle_service.jobs.packaging.ignore_rules import CopyOptions

FILES = ("train.py", "data/a.bin", "data/keep.txt", "src/data/b.bin", "src/model.py", "out/last.ckpt", "notes.md")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / "repository" / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "repository" / "project"


def copied(source: Path, **options: object) -> set[str]:
    target = source.parent.parent / "copy"
    copy_code(source, target, exclude=Path("/nowhere"), options=CopyOptions(**options))  # type: ignore[arg-type]
    return {str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir() or path.is_symlink()}


@pytest.mark.parametrize(
    ("patterns", "left_out"),
    [
        ([], set()),
        (["data"], {"data/a.bin", "data/keep.txt", "src/data/b.bin"}),
        (["/data/"], {"data/a.bin", "data/keep.txt"}),
        (["*.bin", "!src/data/b.bin"], {"data/a.bin"}),
        (["# a comment", "", "out/*.ckpt", "**/*.md"], {"out/last.ckpt", "notes.md"}),
    ],
)
def test_patterns_are_those_of_a_gitignore(source: Path, patterns: list[str], left_out: set[str]) -> None:
    assert copied(source, exclude=patterns) == set(FILES) - left_out


def test_the_ignore_file_counts_always_and_gitignore_on_request(source: Path) -> None:
    (source.parent / ".git").mkdir()
    (source.parent / ".gitignore").write_text("*.md\nproject/out/\n")
    (source / ".gitignore").write_text("data/\n")
    (source / "src" / ".gitignore").write_text("!data/\n*.py\n")
    (source / ".rekindleignore").write_text("!notes.md\n*.ckpt\n")
    files = {*FILES, ".gitignore", "src/.gitignore", ".rekindleignore"}
    assert copied(source) == files - {"out/last.ckpt"}
    (source.parent.parent / "copy").rename(source.parent.parent / "first")
    rest = {"train.py", "notes.md", "src/data/b.bin", ".gitignore", "src/.gitignore", ".rekindleignore"}
    assert copied(source, gitignore=True) == rest, (
        "a deeper file decides before its parent, .rekindleignore before git's"
    )


def test_the_request_decides_before_the_files(source: Path) -> None:
    (source / ".rekindleignore").write_text("data/\nout/\n")
    assert {"data/a.bin", "data/keep.txt"} <= copied(source, exclude=["!/data/", "*.py"])


def test_what_is_excluded_neither_counts_nor_is_read(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_service.jobs.packaging.code_copy.MAX_FILES", len(FILES))
    (source / "data" / "leak").symlink_to("/etc")
    (source / "data" / "more").write_text("")
    with pytest.raises(CodeCopyError):
        copied(source)
    assert "train.py" in copied(source, exclude=["/data"])


def test_too_much_code_is_refused_with_the_option_that_helps(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekindle_service.jobs.packaging.code_copy.MAX_FILES", 2)
    with pytest.raises(CodeCopyError, match=r"--exclude data.*\.rekindleignore"):
        copied(source)


def test_a_wrong_pattern_is_refused_with_its_place(source: Path) -> None:
    (source / ".rekindleignore").write_text("ok\n!\n")
    with pytest.raises(CodeCopyError, match=r"\.rekindleignore.*'!'"):
        copied(source)


def test_links_that_lead_out_are_kept_on_request(source: Path, tmp_path: Path) -> None:
    (tmp_path / "imagenet").mkdir()
    (source / "images").symlink_to("../../imagenet")
    (source / "inner").symlink_to("train.py")
    with pytest.raises(CodeCopyError, match="keep_links"):
        copied(source)
    assert copied(source, keep_links=True) >= {"images", "inner"}
    copy = tmp_path / "copy"
    assert (copy / "images").readlink() == tmp_path / "imagenet"
    assert (copy / "inner").readlink() == Path("train.py")
