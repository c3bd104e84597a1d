"""Names and texts use the field's words: what a reader greps for is what stands there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from doc_pages import pages
from house import FRAGMENT

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


def python_files() -> Iterator[Path]:
    for root in ("service", "worker"):
        yield from sorted((ROOT / root).rglob("*.py"))


def files_of_tests() -> Iterator[Path]:
    """Files of the tests, without the scripts that tests run."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not {"scripts", "fixtures"} & set(path.relative_to(ROOT).parts):
            yield path


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """String constants, docstrings among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


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


def banned_in(text: str) -> list[str]:
    return sorted({match.group().lower() for match in BANNED.finditer(text)})


def fragments(place: Path, tree: ast.AST) -> Iterator[str]:
    for line, text in docstrings(tree):
        if FRAGMENT.match(text):
            yield f"{place}:{line}: half a sentence: {text[:60]!r}"


def findings(path: Path) -> Iterator[str]:
    place = path.relative_to(ROOT)
    tree = ast.parse(path.read_text())
    for line, text in texts(tree):
        yield from (f"{place}:{line}: {word!r} in {text[:60]!r}" for word in banned_in(text))
    yield from fragments(place, tree)
    for line, name in names(tree):
        if NAMES.search(words_of(name)):
            yield f"{place}:{line}: the name {name}"


def findings_in_a_test(path: Path) -> Iterator[str]:
    """Findings in names of functions and classes, which are sentences, and in docstrings; strings are often input."""
    place = path.relative_to(ROOT)
    tree = ast.parse(path.read_text())
    for line, text in docstrings(tree):
        yield from (f"{place}:{line}: {word!r} in {text[:60]!r}" for word in banned_in(text))
    yield from fragments(place, tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = words_of(node.name)
            if NAMES.search(words) or banned_in(words.replace("_", " ")):
                yield f"{place}:{node.lineno}: the name {node.name}"


def test_names_and_texts_use_the_words_of_the_field() -> None:
    found = [finding for path in python_files() for finding in findings(path)]
    found += [finding for path in files_of_tests() for finding in findings_in_a_test(path)]
    assert found == []


def shown_texts() -> Iterator[tuple[Path, str]]:
    """What pages, their modules and the documents show, without code."""
    for page in sorted(WEB.rglob("*.html")):
        yield page, re.sub(r"<[^>]*>", " ", page.read_text())
    for module in sorted(WEB.rglob("*.js")):
        code = re.sub(r"^\s*(//|/\*|\*).*", "", module.read_text(), flags=re.MULTILINE)
        yield module, "\n".join(_JS_STRING.findall(code))
    for document in pages():
        yield document, re.sub(r"```.*?```|`[^`]*`", " ", document.read_text(), flags=re.DOTALL)


def test_pages_and_documents_use_the_words_of_the_field() -> None:
    found = {str(path.relative_to(ROOT)): banned_in(text) for path, text in shown_texts()}
    assert {path: words for path, words in found.items() if words} == {}


def test_a_banned_phrase_is_found_in_any_case() -> None:
    assert [banned_in(text) for text in ("a folder", "It goes on.", "TOLD", "Lies beside it", "a standstill")] == [
        ["folder"],
        ["goes on"],
        ["told"],
        ["beside", "lies"],
        ["standstill"],
    ]
