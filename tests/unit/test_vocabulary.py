"""Names and texts use the field's words: what a reader greps for is what stands there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_pages import pages

ROOT = Path(__file__).parents[2]
WEB = ROOT / "service" / "rekindle_service" / "web"
_JS_STRING = re.compile(r"""`[^`]*`|"[^"\n]*"|'[^'\n]*'""")

BANNED = re.compile(
    r"\b("
    r"told|tells?|telling|wish(es|ed)?|anew|glances?|sightings?|doomed|bury|buried|fate|rosters?|accus(e|es|ed|ation)"
    r"|testimony|stillness|tidy|tidies|bells?|couriers?|cadences?|nudges?|hopeless|victims?|newest|folders?"
    r"|passed over|(set|puts?) aside|left out|go(es|ing)? on|went on|gone on|done again|lies?|beside"
    r"|pieces?|portions?|standstill|last words|as often as it pays|should not happen|choose none"
    r"|so many|so long|under way|stands? still|stood still|gives? back|gave back|given back"
    r")\b",
    re.IGNORECASE,
)
"""Words of the first version that no other system uses in this sense, and phrases that name nothing exactly."""

NAMES = re.compile(
    r"(^|_)(told|tell|wish|anew|glance|sighting|doomed|bury|buried|fate|roster|accusation|testimony|stillness|tidy|bell"
    r"|courier|cadence|nudge|hopeless|victim|newest|folder|folders|longest|fewest|patience)(_|$)",
    re.IGNORECASE,
)
"""Parts of identifiers."""

ALLOWED: dict[str, set[str]] = {
    # columns, counters and fields of version 0.1.0
    "service/rekindle_service/store/migrations/versions/v0006_version_0_1.py": {"cadence"},
    "service/rekindle_service/store/migrations/versions/v0007_spec.py": {"cadence", "told"},
    "worker/rekindle/contract/job.py": {"cadence"},
    "worker/rekindle/training/renamed.py": {"cadence", "newest"},
    "worker/rekindle/contract/environment.py": {"cadence"},
    "worker/rekindle/__init__.py": {"cadence"},
    "worker/rekindle/contract/run_dir/control.py": {"bell"},
    "worker/rekindle/contract/run_dir/json_records.py": {"cadence"},
}
"""Per file, what an earlier version wrote and this one still reads, with the reason beside it."""


def python_files() -> list[Path]:
    return sorted(path for root in ("service", "worker") for path in (ROOT / root).rglob("*.py"))


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """String constants, docstrings among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield line, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield line, name


def words_of(name: str) -> str:
    """``LogChoice`` and ``log_choice`` as ``log_choice``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def findings(path: Path) -> Iterator[str]:
    relative = str(path.relative_to(ROOT))
    allowed = ALLOWED.get(relative, set())
    tree = ast.parse(path.read_text())
    for line, text in texts(tree):
        found = {match.group().lower() for match in BANNED.finditer(text)} - allowed
        yield from (f"{relative}:{line}: {word!r} in {text[:60]!r}" for word in sorted(found))
    for line, name in names(tree):
        if NAMES.search(words_of(name)) and name not in allowed:
            yield f"{relative}:{line}: the name {name}"


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_names_and_texts_use_the_words_of_the_field(path: Path) -> None:
    assert list(findings(path)) == []


def banned_in(text: str) -> list[str]:
    return sorted({match.group().lower() for match in BANNED.finditer(text)})


@pytest.mark.parametrize("page", sorted(WEB.rglob("*.html")), ids=lambda p: p.name)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    assert banned_in(re.sub(r"<[^>]*>", " ", page.read_text())) == []


@pytest.mark.parametrize("module", sorted(WEB.rglob("*.js")), ids=lambda p: str(p.relative_to(WEB)))
def test_texts_of_the_modules_of_pages_use_the_words_of_the_field(module: Path) -> None:
    strings = _JS_STRING.findall(re.sub(r"^\s*(//|/\*|\*).*", "", module.read_text(), flags=re.MULTILINE))
    assert banned_in("\n".join(strings)) == []


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_documents_use_the_words_of_the_field(page: Path) -> None:
    assert banned_in(re.sub(r"```.*?```|`[^`]*`", " ", page.read_text(), flags=re.DOTALL)) == []


@pytest.mark.parametrize("phrase", ["a folder", "It goes on.", "told", "Lies beside it", "a standstill"])
def test_a_banned_phrase_is_found_in_any_case(phrase: str) -> None:
    assert banned_in(phrase)
