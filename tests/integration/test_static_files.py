"""The files of the pages: names that never get other content, compression, and the modules of a page."""

import re
from pathlib import Path

import pytest

from api_server import ApiServer
from rekindle_service.api.static_files import StaticFiles, page_files

_GZIP = {"Accept-Encoding": "gzip"}
_PLAIN = {"Accept-Encoding": "gzip;q=0, identity"}


def test_a_page_names_files_that_a_browser_keeps_and_nothing_imports_another(server: ApiServer) -> None:
    page = server.api.get("/").text
    urls = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert len(urls) > 10
    assert all(url.startswith(f"/static/{page_files().digest}/") for url in urls)
    for url in urls:
        answer = server.api.get(url)
        assert answer.status_code == 200, url
        assert "immutable" in answer.headers["Cache-Control"]


def test_a_page_names_every_module_that_its_modules_import(server: ApiServer) -> None:
    for path in ("/", "/jobs/abcdefghij", "/submit", "/compare", "/machine", "/disk", "/experiments"):
        page = server.api.get(path).text
        urls = set(re.findall(r'(?:href|src)="(/static/[^"]+\.js)"', page))
        for url in urls:
            source = server.api.get(url).text
            for imported in re.findall(r'^(?:import|export) [^;]*?from "(\.[^"]+)";$', source, re.MULTILINE):
                assert str(server.api.base_url.join(url).join(imported).path) in urls, (url, imported)


def test_a_file_is_compressed_for_who_reads_that_and_the_same_for_who_does_not(server: ApiServer) -> None:
    url = page_files().url("shared/dom.js")
    compressed, plain = server.api.get(url, headers=_GZIP), server.api.get(url, headers=_PLAIN)
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert int(compressed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 2
    assert compressed.content == plain.content
    assert compressed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"


def test_a_page_of_another_version_gets_the_files_of_this_one_and_does_not_keep_them(server: ApiServer) -> None:
    answer = server.api.get("/static/0123456789abcdef/shared/dom.js")
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "private, no-cache"
    again = server.api.get("/static/shared/dom.js", headers={"If-None-Match": f'"x", {answer.headers["ETag"]}'})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["", "shared", "shared/", "shared/../shared/dom.js", "nowhere.js", "0123456789abcdef/"]
)
def test_what_is_no_file_is_not_found(server: ApiServer, path: str) -> None:
    assert server.api.get(f"/static/{path}".replace("..", "%2e%2e")).status_code == 404


def test_the_name_of_all_files_changes_with_the_content_of_any(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "one.js").write_text('import { x } from "../two.js";\nimport "./three.js";\n')
    (tmp_path / "page" / "three.js").write_text('export {\n  y,\n} from "./one.js";\n')
    (tmp_path / "two.js").write_text("export const x = 1;\n")
    (tmp_path / "notes.txt").write_text("not served")
    before = StaticFiles(tmp_path)
    assert before.module_urls("page/one.js") == [before.url("two.js"), before.url("page/three.js")]
    with pytest.raises(KeyError):
        before.url("notes.txt")
    (tmp_path / "two.js").write_text("export const x = 2;\n")
    after = StaticFiles(tmp_path)
    assert after.digest != before.digest
    (tmp_path / "two.js").unlink()
    with pytest.raises(KeyError):
        StaticFiles(tmp_path).module_urls("page/one.js")


# --- JSON and pages


def test_large_json_and_pages_are_compressed_and_small_json_is_not(server: ApiServer) -> None:
    for path in ("/openapi.json", "/jobs/abcdefghij"):
        answer, plain = (server.api.get(path, headers=headers) for headers in (_GZIP, _PLAIN))
        assert answer.headers["Content-Encoding"] == "gzip", path
        assert int(answer.headers["Content-Length"]) < len(answer.content) / 2
        assert "Accept-Encoding" in answer.headers["Vary"]
        assert "Content-Encoding" not in plain.headers
        assert answer.content == plain.content
    assert "Content-Encoding" not in server.api.get("/api/v1/jobs", headers=_GZIP).headers
    assert "Content-Encoding" not in server.api.get("/openapi.json", headers={"Accept-Encoding": "br"}).headers


def test_a_log_is_not_compressed_since_clients_count_its_bytes(server: ApiServer, tmp_path: Path) -> None:
    job = server.submit(tmp_path)
    rank = server.run_dir(job).attempt(1).rank(0)
    rank.root.mkdir(parents=True)
    rank.log("stdout").write_bytes(b"line\n" * 1000)
    answer = server.api.get(f"/api/v1/jobs/{job['id']}/ranks/0/log?attempt=1", headers=_GZIP)
    assert answer.status_code == 200, answer.text
    assert "Content-Encoding" not in answer.headers
    assert len(answer.content) == 5000
