"""The site of the documentation: ``python tests/docs_site.py`` (or ``make docs``) builds it in ``build/site``.

The pages link to each other as files of the repository, so that the links work on a code host, too. In the
site ``docs/`` is the root, and what a page links to outside of ``docs/`` has the same path below it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from doc_pages import ROOT

_LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)#\s]+)")
_LINK_TO_TEXT = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_BAR = "\\|"
_CODE_WITH_BAR = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
_README = ROOT / "README.md"
_HOME = ROOT / "docs" / "index.md"
_SKILL = ROOT / "docs" / "skills" / "rekindle" / "SKILL.md"
_ROW = re.compile(r"^\| \[(.+?)\]\((.+?)\) \| (.+) \|$")


def build(project: Path = ROOT) -> Path:
    """Build the site in ``build/site`` of ``project`` and return its directory.

    Raises RuntimeError with the output of the generator where it fails or warns, such as of a link to no page.
    """
    if project != ROOT:
        shutil.copy(ROOT / "zensical.toml", project)
    _copy_pages(project / "build" / "pages")
    site = generate(project)
    for page in [*pages(), _SKILL]:  # which llms.txt links to
        _write(site / place(page), _as_site_page(page).encode())
    _write(site / "llms.txt", llms_text().encode())
    return site


def generate(project: Path) -> Path:
    """Build the site from the pages that are in ``build/pages`` of ``project``; otherwise as ``build``."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"zensical could not build the site:\n{done.stdout}{done.stderr.partition('Traceback')[0]}")
    return project / "build" / "site"


def pages() -> list[Path]:
    """The pages of the site: those at the root of the repository, in docs/ and in deploy/."""
    found = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")}
    return sorted(found - {_SKILL})


def llms_text() -> str:
    """The index of the pages for language models, in the form of llmstxt.org, from the tables of the home page."""
    title, _, summary, *lines = _HOME.read_text().splitlines()
    index = [title, "", f"> {summary}"]
    for line in lines:
        if line.startswith("## "):
            index += ["", line, ""]
        elif (row := _ROW.match(line)) is not None:
            gloss = _LINK_TO_TEXT.sub(r"\1", row[3])
            index.append(f"- [{row[1]}]({place(_target(_HOME, row[2]))}): {gloss}")
    description = _SKILL.read_text().split("\ndescription: ")[1].partition("\n")[0]
    return "\n".join([*index, "", "## Skill", "", f"- [SKILL.md]({place(_SKILL)}): {description}", ""])


def place(path: Path) -> Path:
    """Where a file of the repository is in the site, relative to its root."""
    relative = path.relative_to(ROOT)
    if path == _README:
        return Path("readme.md")  # the generator takes README.md for the home page, which is docs/index.md
    if path.name == "README.md":
        return relative.with_name("index.md")
    return relative.relative_to("docs") if relative.parts[0] == "docs" else relative


def _copy_pages(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    found = pages()
    for page in found:
        _write(target / place(page), _as_site_page(page).encode())
    for file in {linked for page in found for linked in _linked(page)} - {*found}:
        if file.is_file():
            _write(target / place(file), file.read_bytes())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _as_site_page(page: Path) -> str:
    """The text of a page with the links of the site, and bars in the code of a table as the generator takes them."""

    def relative(link: re.Match[str]) -> str:
        linked = _target(page, link[1])
        if not linked.is_relative_to(ROOT):
            return link[1]
        return os.path.relpath(place(linked), place(page).parent)

    text = _LINK.sub(relative, page.read_text())
    return _CODE_WITH_BAR.sub(lambda code: f"<code>{escape(code[1]).replace(_BAR, '&#124;')}</code>", text)


def _linked(page: Path) -> Iterator[Path]:
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        yield _target(page, link)


def _target(page: Path, link: str) -> Path:
    return Path(os.path.normpath(page.parent / link))


if __name__ == "__main__":
    print(f"file://{build()}/index.html")
