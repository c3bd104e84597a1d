"""Whether there is space on a disk."""

from pathlib import Path

import pytest

from rekindle.contract.files import check_free_space, has_free_space


def test_the_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    assert has_free_space(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_error_names_the_directory(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert not has_free_space(missing)
    with pytest.raises(OSError, match=str(missing)):
        check_free_space(missing)
