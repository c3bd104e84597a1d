"""The shape of the code in figures: ``python tests/house.py [REVISION [REVISION]]``.

With one revision it is compared with the working tree, with two they are compared with each other, with none the
working tree is shown alone. Standard library only; files of a revision are read from git, so any commit can be shown.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from statistics import median

_ROOT = Path(__file__).parents[1]
_PRODUCT = ("service/", "worker/")
_WEB = (".js", ".css", ".html")
_SHORT_FILE, _LONG_FUNCTION, _TOO_LONG_FUNCTION, _PASSAGE = 80, 35, 60, 6  # lines
_MANY_MODULES = 15
_IMPORT_LIST = re.compile(r"^(from \S+ import \(.*?^\)|import \{.*?\} from .*?$)", re.MULTILINE | re.DOTALL)
FRAGMENT = re.compile(r"(Of|Those|As|And|At most|For a)\b")
_NO_CODE = re.compile(r"import |from .* import |#|//|/?\*|[\])}]+[,;]?$|\"\"\"|@|else:$|try:$|\} else \{$")


@dataclass(frozen=True)
class SourceFile:
    path: PurePosixPath
    text: str

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def generated(self) -> bool:
        """Written by ``make generate``, as its first line says."""
        return "do not edit" in self.text[:200]


# --- reading


def read_files(revision: str | None) -> list[SourceFile]:
    """Python and web files of product and tests. Raises SystemExit for an unknown revision."""
    return list(_working_tree() if revision is None else _committed(revision))


def _working_tree() -> Iterator[SourceFile]:
    for name in _names(_git("ls-files", "-z", "--cached", "--others", "--exclude-standard")):
        if (_ROOT / name).is_file():
            yield SourceFile(PurePosixPath(name), (_ROOT / name).read_text())


def _committed(revision: str) -> Iterator[SourceFile]:
    names = _names(_git("ls-tree", "-r", "-z", "--name-only", revision))
    answer = _git("cat-file", "--batch", given="".join(f"{revision}:{name}\n" for name in names))
    for name in names:
        header, _, answer = answer.partition(b"\n")
        size = int(header.split()[2])
        yield SourceFile(PurePosixPath(name), answer[:size].decode())
        answer = answer[size + 1 :]


def _names(listing: bytes) -> list[str]:
    """Recorded files under tests/fixtures are data."""
    names = sorted(set(listing.decode().split("\0")))
    roots = (*_PRODUCT, "tests/")
    return [n for n in names if n.startswith(roots) and n.endswith((".py", *_WEB)) and "tests/fixtures/home" not in n]


def _git(*words: str, given: str | None = None) -> bytes:
    stdin = None if given is None else given.encode()
    done = subprocess.run(["git", "-C", str(_ROOT), *words], input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode().strip())
    return done.stdout


# --- measuring


def measure(files: list[SourceFile]) -> dict[str, int | float]:
    """Every figure by its title, in the order of the table."""
    product = [file for file in files if str(file.path).startswith(_PRODUCT)]
    tests = [file for file in files if not str(file.path).startswith(_PRODUCT)]
    python = [file for file in product if file.path.suffix == ".py"]
    web = [file for file in product if file.path.suffix in _WEB]
    lengths = [file.lines for file in python]
    functions = [length for file in python for length in function_lengths(file)]
    by_hand = [file for file in product if not file.generated]
    with_option = [file for file in product if "hang_timeout" in file.text]
    importers, modules = importers_of(python), {module_of(file.path): file for file in python}
    small = [name for name, found in importers.items() if len(found) == 1 and _is_small(modules[name])]
    passages, packages = repeated_passages(product), modules_by_package(python)
    return {
        "product files": len(product),
        "  Python": len(python),
        "  JavaScript, CSS, HTML": len(web),
        "product lines": _lines(product),
        "  Python ": _lines(python),
        "  JavaScript, CSS, HTML ": _lines(web),
        "  written by hand": _lines(by_hand),
        "  characters of these": sum(len(file.text) for file in by_hand),
        "test files": len(tests),
        "test lines": _lines(tests),
        "median length of a Python file": median(lengths),
        f"Python files under {_SHORT_FILE} lines, %": 100
        * sum(length < _SHORT_FILE for length in lengths)
        / len(lengths),
        f"modules under {_SHORT_FILE} lines with one importer": len(small),
        "public classes of the same name": _repeated(public_classes(python)),
        "modules and packages of the same name": _repeated(name.rpartition(".")[2] for name in modules),
        "docstrings that begin as a fragment": sum(map(_fragments, python)),
        "functions": len(functions),
        "  median length": median(functions),
        f"  over {_LONG_FUNCTION} lines": sum(length > _LONG_FUNCTION for length in functions),
        f"  over {_TOO_LONG_FUNCTION} lines": sum(length > _TOO_LONG_FUNCTION for length in functions),
        "product files that name hang_timeout": len(with_option),
        "  by hand, migrations apart": sum(
            not file.generated and "migrations" not in str(file.path) for file in with_option
        ),
        "places that ask is_cluster": sum(file.text.count(".is_cluster") for file in python),
        f"repeated passages of {_PASSAGE} lines or more": len(passages),
        "  lines in them": sum(passages),
        "packages": len(packages),
        f"  with over {_MANY_MODULES} modules": sum(count > _MANY_MODULES for count in packages.values()),
        **{f"  modules in {package}/": count for package, count in packages.items()},
    }


def function_lengths(file: SourceFile) -> Iterator[int]:
    """Lines of every function and method, from ``def`` to its end; decorators do not count, inner functions do."""
    for node in ast.walk(ast.parse(file.text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def module_of(path: PurePosixPath) -> str:
    """Dotted name of a module below ``service`` or ``worker``; that of a package for its ``__init__``."""
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")


def importers_of(python: list[SourceFile]) -> dict[str, set[str]]:
    """Modules that import each module, by dotted name. Entry points have none."""
    found: dict[str, set[str]] = {module_of(file.path): set() for file in python}
    for file in python:
        for node in ast.walk(ast.parse(file.text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in found.keys() & set(names) - {module_of(file.path)}:
                found[name].add(module_of(file.path))
    return found


def public_classes(python: list[SourceFile]) -> Iterator[str]:
    """Names of the classes at module level, once for each module that defines one."""
    for file in python:
        for node in ast.parse(file.text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def modules_by_package(python: list[SourceFile]) -> Counter[str]:
    """Python files directly in each package, with ``__init__`` and without those of its sub-packages."""
    return Counter(str(file.path.parent.relative_to(file.path.parts[0])) for file in python)


def repeated_passages(product: list[SourceFile]) -> list[int]:
    """Lengths, in lines of code, of the passages that stand in more than one place; each repeat counts once.

    Blank lines, comments, imports, decorators and lonely brackets are removed before lines are compared, so a
    passage may be spread over more lines than are counted. A passage ends with its file.
    """
    seen: dict[tuple[str, ...], tuple[int, int]] = {}
    found = []
    coded = [list(_code_lines(file)) for file in product]
    for number, lines in enumerate(coded):
        start = 0
        while start + _PASSAGE <= len(lines):
            first = seen.get(tuple(lines[start : start + _PASSAGE]))
            if first is None or (first[0] == number and first[1] + _PASSAGE > start):
                seen.setdefault(tuple(lines[start : start + _PASSAGE]), (number, start))
                start += 1
                continue
            length = _equal_lines(coded[first[0]], first[1], lines, start)
            found.append(length)
            start += length
    return found


def _equal_lines(one: list[str], first: int, other: list[str], second: int) -> int:
    length = 0
    while first + length < len(one) and second + length < len(other) and one[first + length] == other[second + length]:
        length += 1
    return length


def _code_lines(file: SourceFile) -> Iterator[str]:
    for line in _IMPORT_LIST.sub("", file.text).splitlines():
        normalised = " ".join(line.split())
        if normalised and not _NO_CODE.match(normalised):
            yield normalised


def _is_small(file: SourceFile) -> bool:
    return file.lines < _SHORT_FILE and file.path.name != "__init__.py"


def _repeated(names: Iterable[str]) -> int:
    return sum(count > 1 for name, count in Counter(names).items() if name != "__main__")


def _fragments(file: SourceFile) -> int:
    """Docstrings that nobody understands without the name above them, by the rule of the vocabulary."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node) for node in ast.walk(ast.parse(file.text)) if isinstance(node, kinds))
    return sum(text is not None and FRAGMENT.match(text) is not None for text in texts)


def _lines(files: list[SourceFile]) -> int:
    return sum(file.lines for file in files)


# --- printing


def table(columns: dict[str, dict[str, float]]) -> str:
    """One row a figure, with two columns also the change; packages that were never large are not listed."""
    every = dict.fromkeys(title for column in columns.values() for title in column)
    titles = [title for title in every if "modules in" not in title or _was_large(title, columns)]
    width = max(map(len, titles)) + 2
    rows = [" " * width + "".join(f"{name[:16]:>18}" for name in columns) + (f"{'change':>12}" * (len(columns) == 2))]
    for title in titles:
        values = [column.get(title, 0) for column in columns.values()]
        rows.append(f"{title:{width}}" + "".join(f"{_written(value):>18}" for value in values) + _change(values))
    return "\n".join(row.rstrip() for row in rows)


def _was_large(title: str, columns: dict[str, dict[str, float]]) -> bool:
    return any(column.get(title, 0) > _MANY_MODULES for column in columns.values())


def _written(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _change(values: list[float]) -> str:
    if len(values) != 2 or not values[0] or values[0] == values[1]:
        return ""
    return f"{(values[1] - values[0]) / values[0]:>+12.0%}"


def main(revisions: list[str]) -> None:
    asked: list[str | None] = [*revisions, *([None] if len(revisions) < 2 else [])]
    columns = {revision or "working tree": measure(read_files(revision)) for revision in asked}
    print(table(columns))


if __name__ == "__main__":
    main(sys.argv[1:3])
