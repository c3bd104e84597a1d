"""The site of the documentation: it builds without a warning, and its pages load nothing from other sites."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import docs_site
from doc_pages import ROOT

_LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?([^\"'>\s]+)")
_FOREIGN = re.compile(r"^(?:\w+:)?//")
_ROW = re.compile(r"^\| \[(.+?)\]\((.+?)\) \|", re.MULTILINE)
_SITE_FONTS = re.compile(r"url\([\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to no page, and to no heading of a page, fail here."""
    return docs_site.build(tmp_path_factory.mktemp("docs"))


def test_every_page_is_built_and_loads_nothing_from_other_sites(site: Path) -> None:
    found: list[str] = []
    for page in docs_site.pages():
        text = (site / docs_site.place(page)).with_suffix(".html").read_text()
        found += [f"{page} loads {url}" for url in _LOADED.findall(text) if _FOREIGN.match(url)]
        if 'class="mermaid"' in text:
            found.append(f"{page} has a diagram that loads a script from another site")
    found += [
        f"{style} loads a font from another site"
        for style in site.rglob("*.css")
        if _SITE_FONTS.search(style.read_text())
    ]
    assert found == []


def test_every_page_but_the_readme_is_in_the_navigation_by_its_heading() -> None:
    configuration = tomllib.loads((ROOT / "zensical.toml").read_text())
    named = dict(_titles(configuration["project"]["nav"]))
    headings = {str(docs_site.place(page)): _heading(page).replace("`", "") for page in docs_site.pages()}
    del headings["readme.md"]
    assert named == {**headings, "index.md": "Home"}


def test_the_home_page_lists_every_page_by_its_heading() -> None:
    home = ROOT / "docs" / "index.md"
    listed = {(home.parent / target).resolve(): title for title, target in _ROW.findall(home.read_text())}
    pages = set(docs_site.pages()) - {home, ROOT / "README.md"}
    assert listed == {page: _heading(page) for page in pages}


def test_the_index_for_language_models_has_every_page_and_links_to_files(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    assert re.match(r"# rekindle\n\n> rekindle is .+\n\n## Start here\n\n- \[", text)
    links = re.findall(r"^- \[.+?\]\((.+?)\): \S", text, re.MULTILINE)
    assert len(links) == text.count("\n- ") == len(docs_site.pages()) - 2 + 1  # home and readme less, the skill more
    assert [link for link in links if not (site / link).read_text().startswith(("# ", "---"))] == []


def _titles(entries: list[dict[str, object]]) -> Iterator[tuple[str, str]]:
    """Every page of the navigation with its name there."""
    for entry in entries:
        for name, value in entry.items():
            if isinstance(value, list):
                yield from _titles(value)
            else:
                yield str(value), name


def _heading(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")


def test_a_link_to_a_missing_heading_fails_the_build(tmp_path: Path) -> None:
    pages = tmp_path / "build" / "pages"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text("# Home\n\n[away](#nowhere)\n")
    (tmp_path / "zensical.toml").write_bytes((ROOT / "zensical.toml").read_bytes())
    with pytest.raises(RuntimeError, match=r"index\.md:3"):
        docs_site.generate(tmp_path)
