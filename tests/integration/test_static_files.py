"""The files of the pages: names that never get other content, compression, and bundles of modules and styles."""

import re
from os.path import normpath
from pathlib import Path

import pytest

from api_server import ApiServer
from rekindle_service.api import static_files
from rekindle_service.api.static_files import SEPARATE_MODULES, BundleError, StaticFiles, bundle, page_files

STATIC = Path(static_files.__file__).parents[1] / "web" / "static"

_GZIP = {"Accept-Encoding": "gzip"}
_PLAIN = {"Accept-Encoding": "identity"}


def test_a_page_names_files_that_a_browser_keeps_and_nothing_imports_another(shared_server: ApiServer) -> None:
    page = shared_server.api.get("/").text
    urls = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert 3 <= len(urls) <= 6
    assert all(url.startswith(f"/static/{page_files().digest}/") for url in urls)
    for url in urls:
        answer = shared_server.api.get(url)
        assert answer.status_code == 200, url
        assert "immutable" in answer.headers["Cache-Control"]


def test_a_bundle_has_every_module_that_its_modules_import_once_and_after_those_that_it_needs() -> None:
    files = {path.relative_to(STATIC).as_posix(): path.read_text() for path in STATIC.rglob("*.js")}
    entries = [path for path in files if path.endswith(("-page.js", "-worker.js"))]
    assert len(entries) > 8
    for entry in entries:
        modules = re.findall(r"^// (\S+\.js)$", bundle(entry, files, "bundle"), re.MULTILINE)
        assert len(modules) == len(set(modules))
        assert modules[-1] == entry
        for position, path in enumerate(modules):
            for name in re.findall(r'^import .*?"(\..*?)";$', files[path], re.MULTILINE):
                imported = normpath(Path(path).parent / name)
                assert imported in {*modules[:position], *SEPARATE_MODULES}, (path, imported)


def test_a_module_in_a_bundle_is_a_function_that_returns_what_it_exports() -> None:
    files = {
        "page/one.js": 'import { x as y } from "../two.js";\nimport "../shared/theme.js";\n'
        "const u = import.meta.url;\nawait u;\n",
        "two.js": "/** A number. */\nexport const x = 1; // one\n/**\n * A * function.\n */\n"
        "export async function f() {}\n  // done\n/** @type {number} */ (x) + 1;\n",
        "shared/theme.js": "",
    }
    assert bundle("page/one.js", files, "bundle").splitlines() == [
        'import * as module1 from "../../shared/theme.js";',
        "const module0 = (() => {",
        "// two.js",
        "const x = 1; // one",
        "async function f() {}",
        "/** @type {number} */ (x) + 1;",
        "return { x, f };",
        "})();",
        "{",
        "// page/one.js",
        "const { x: y } = module0;",
        "",
        'const u = new URL("one.js", import.meta.url);',
        "await u;",
        "}",
    ]


def test_a_bundle_that_is_loaded_on_demand_exports_what_its_module_does() -> None:
    files = {"one.js": 'import { x } from "./two.js";\nexport const y = x;\nexport function f() {}\n', "two.js": ""}
    assert bundle("one.js", files, "bundle").splitlines()[-2:] == ["})();", "export const { y, f } = module1;"]


def test_a_bundle_of_styles_has_what_they_import_before_them() -> None:
    files = {"page/one.css": '@import "../two.css";\na { color: red; }\n', "two.css": "b { color: blue; }\n"}
    assert bundle("page/one.css", files, "bundle") == (
        "/* two.css */\nb { color: blue; }\n/* page/one.css */\na { color: red; }\n"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('import x from "./two.js";\n', "one.js: 'import x from"),
        ("export default 1;\n", "one.js: 'export default 1;' is no form"),
        ('import { x } from "./nowhere.js";\n', "one.js imports nowhere.js, which does not exist"),
        ('import { x } from "./two.js";\n', "one.js imports two.js imports one.js: imports must not form a circle"),
    ],
)
def test_what_a_bundle_cannot_have_is_named(source: str, message: str) -> None:
    with pytest.raises(BundleError, match=re.escape(message)):
        bundle("one.js", {"one.js": source, "two.js": 'import "./one.js";\n'}, "bundle")


def test_a_file_is_compressed_for_who_reads_that_and_the_same_for_who_does_not(shared_server: ApiServer) -> None:
    url = page_files().url("shared/dom.js")
    compressed, plain = shared_server.api.get(url, headers=_GZIP), shared_server.api.get(url, headers=_PLAIN)
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert int(compressed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 2
    assert compressed.content == plain.content
    assert compressed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"


def test_a_page_of_another_version_gets_the_files_of_this_one_and_does_not_keep_them(shared_server: ApiServer) -> None:
    answer = shared_server.api.get("/static/0123456789abcdef/shared/dom.js")
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "private, no-cache"
    again = shared_server.api.get("/static/shared/dom.js", headers={"If-None-Match": f'"x", {answer.headers["ETag"]}'})
    assert (again.status_code, again.content) == (304, b"")


def test_what_is_no_file_is_not_found(shared_server: ApiServer) -> None:
    paths = ("", "shared/", "shared/%2e%2e/shared/dom.js", "nowhere.js", "0123456789abcdef/")
    paths += ("bundle/", "bundle/nowhere.js", "bundle/shared/logo.svg")
    assert {path: shared_server.api.get(f"/static/{path}").status_code for path in paths} == dict.fromkeys(paths, 404)


def test_the_name_of_all_files_changes_with_the_content_of_any(tmp_path: Path) -> None:
    (tmp_path / "one.js").write_text("export const x = 1;\n")
    (tmp_path / "notes.txt").write_text("not served")
    before = StaticFiles(tmp_path)
    with pytest.raises(KeyError):
        before.url("notes.txt")
    with pytest.raises(KeyError):
        before.bundle_url("notes.txt")
    (tmp_path / "one.js").write_text("export const x = 2;\n")
    assert StaticFiles(tmp_path).digest != before.digest


# --- JSON and pages


def test_large_json_and_pages_are_compressed_and_small_json_is_not(shared_server: ApiServer) -> None:
    for path in ("/openapi.json", "/jobs/abcdefghij"):
        answer, plain = (shared_server.api.get(path, headers=headers) for headers in (_GZIP, _PLAIN))
        assert answer.headers["Content-Encoding"] == "gzip", path
        assert int(answer.headers["Content-Length"]) < len(answer.content) / 2
        assert "Accept-Encoding" in answer.headers["Vary"]
        assert "Content-Encoding" not in plain.headers
        assert answer.content == plain.content
    assert "Content-Encoding" not in shared_server.api.get("/api/v1/jobs", headers=_GZIP).headers
    assert "Content-Encoding" not in shared_server.api.get("/openapi.json", headers={"Accept-Encoding": "br"}).headers


def test_logs_and_downloads_are_not_compressed_since_clients_count_their_bytes(
    shared_server: ApiServer, tmp_path: Path
) -> None:
    job = shared_server.submit(tmp_path)
    rank = shared_server.run_dir(job).attempt(1).rank(0)
    rank.root.mkdir(parents=True)
    rank.log("stdout").write_bytes(b"line\n" * 1000)
    logs = f"/api/v1/jobs/{job['id']}"
    for url, headers, status in (
        (f"{logs}/ranks/0/log?attempt=1", {}, 200),
        (f"{logs}/ranks/0/log?attempt=1", {"Range": "bytes=0-4999"}, 206),
        (f"{logs}/ranks/0/log/file?attempt=1", {}, 200),
        (f"{logs}/logs.zip", {}, 200),
    ):
        answer = shared_server.api.get(url, headers={**_GZIP, **headers})
        assert answer.status_code == status, answer.text
        assert "Content-Encoding" not in answer.headers, url
        assert url.endswith(".zip") or len(answer.content) == int(answer.headers["Content-Length"]) == 5000


def test_a_stream_of_events_is_sent_as_it_is(server: ApiServer) -> None:
    server.state.stopping.set()  # the stream ends after its first event
    answer = server.api.get("/api/v1/events", headers=_GZIP)
    assert "Content-Encoding" not in answer.headers
    assert answer.text.startswith("event: hello")
