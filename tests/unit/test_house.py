"""Figures of the script that prints the shape of the code."""

from pathlib import PurePosixPath

from house import SourceFile, function_lengths, measure, modules_by_package, repeated_passages, table

_PASSAGE = "\n".join(f"    value = compute({number})" for number in range(7))


def a_file(text: str, path: str = "service/rekindle_service/jobs/a.py") -> SourceFile:
    return SourceFile(PurePosixPath(path), text)


def test_a_passage_that_stands_twice_counts_once_and_with_all_its_lines_unless_it_imports() -> None:
    other = a_file(f"def other():\n    # why\n\n{_PASSAGE}\n    return 1\n")
    assert repeated_passages([a_file(f"def one():\n{_PASSAGE}\n    return 2\n"), other]) == [7]
    assert repeated_passages([a_file("\n".join(_PASSAGE.splitlines()[:5]))] * 2) == []
    names = "\n".join(f"    Name{number}," for number in range(9))
    assert repeated_passages([a_file(f"from x import (\n{names}\n)\n")] * 2) == []


def test_a_function_is_as_long_as_from_def_to_its_last_line() -> None:
    assert list(function_lengths(a_file("@decorated\ndef one():\n    pass\n\n\nasync def two(): ...\n"))) == [2, 1]


def test_modules_count_for_the_package_that_holds_them() -> None:
    paths = ("worker/rekindle/a.py", "worker/rekindle/keeper/__init__.py", "worker/rekindle/keeper/b.py")
    assert modules_by_package([a_file("", path) for path in paths]) == {"rekindle": 1, "rekindle/keeper": 2}


def test_two_versions_stand_side_by_side_with_the_change() -> None:
    before = measure([a_file("def one():\n    pass\n" * 2), a_file("", "tests/a.py")])
    shown = table({"before": before, "after": measure([a_file("def one():\n    pass\n")])})
    assert max(map(len, shown.splitlines())) <= 100
    (lines,) = [line.split() for line in shown.splitlines() if line.startswith("product lines")]
    assert lines == ["product", "lines", "4", "2", "-50%"]
