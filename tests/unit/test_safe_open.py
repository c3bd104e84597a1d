from pathlib import Path

from rekindle.contract.safe_open import list_numbers, open_beneath, read_small


def test_no_directory_on_the_way_may_be_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "0").mkdir(parents=True)
    (outside / "0" / "stdout.log").write_text("secret")
    run = tmp_path / "run"
    run.mkdir()
    (run / "ranks").symlink_to(outside)
    assert open_beneath(run, run / "ranks" / "0" / "stdout.log") is None
    assert list_numbers(run / "ranks") == []


def test_no_path_leads_out_by_its_parent(tmp_path: Path) -> None:
    (tmp_path / "run" / "code").mkdir(parents=True)
    (tmp_path / "token").write_text("secret")
    assert open_beneath(tmp_path / "run", tmp_path / "run" / "code" / ".." / ".." / "token") is None


def test_the_root_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("here")
    (tmp_path / "home").symlink_to(tmp_path / "real")
    assert read_small(tmp_path / "home", tmp_path / "home" / "file") == b"here"


def test_a_small_file_that_is_not_small_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 11)
    assert read_small(tmp_path, tmp_path / "file", limit=10) is None
    assert read_small(tmp_path, tmp_path / "file", limit=11) == b"x" * 11


def test_only_names_that_are_plain_numbers_are_listed(tmp_path: Path) -> None:
    for name in ("0", "12", "007", "-1", "1e3", "\u0663", "9" * 40, "x", "100"):
        (tmp_path / name).mkdir()
    assert list_numbers(tmp_path, 100) == [0, 7, 12]
