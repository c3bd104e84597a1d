"""Code that is uploaded, or fetched from git, instead of a directory of the server."""

import gzip
import hashlib
import io
import os
import re
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import MAX_BUNDLE_BYTES, ApiServer
from job_examples import names_in
from rekindle.contract.states import JobState
from rekindle_service.jobs.packaging.code_sources import Bundles
from rekindle_service.scheduler.recovery import recover_on_startup

PATH = "/api/v1/bundles"
JOBS = "/api/v1/jobs"
GZIP = {"Content-Type": "application/gzip"}
NOBODY = "sha256:" + "0" * 64


def archive(name: str = "train.py", content: bytes = b"print('hi')\n") -> bytes:
    """A tar.gz of one file. The same file gives the same bytes at any time: gzip's header holds no time here."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def upload(server: ApiServer, content: bytes, status: int = 201, **headers: str) -> dict[str, Any]:
    answer = server.api.post(PATH, content=content, headers={**GZIP, **headers})
    assert answer.status_code == status, answer.text
    return answer.json()


def job_of(code: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"script": "train.py", "code": code, "device": "cpu", **fields}


def refusal(server: ApiServer, body: dict[str, Any]) -> dict[str, Any]:
    answer = server.api.post(JOBS, json=body)
    assert answer.status_code == 422, answer.text
    assert names_in(server.state.home.runs) == []
    (error,) = answer.json()["errors"]
    return error


def test_a_bundle_becomes_the_code_of_jobs_is_kept_once_and_has_the_hash_of_its_archive(server: ApiServer) -> None:
    packed = archive()
    bundle = upload(server, packed)
    assert bundle == {"id": f"sha256:{hashlib.sha256(packed).hexdigest()}", "bytes": len(packed)}
    assert upload(server, packed, status=200) == bundle
    assert names_in(server.state.home.bundles) == [bundle["id"].removeprefix("sha256:")]
    for _ in range(2):
        answer = server.api.post(JOBS, json=job_of({"bundle": bundle["id"]}))
        assert answer.status_code == 201, answer.text
        assert answer.json()["code"] == {"bundle": bundle["id"]}
        assert (server.run_dir(answer.json()).code / "train.py").read_text() == "print('hi')\n"


def test_a_zip_is_accepted_and_a_type_with_parameters_too(server: ApiServer) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("train.py", "")
    upload(server, packed.getvalue(), **{"Content-Type": "Application/ZIP; charset=binary"})


def test_what_is_no_sound_archive_is_rejected_and_leaves_nothing(server: ApiServer) -> None:
    for content, rule in (
        (b"", "must be a tar.gz or zip"),
        (b"print('hi')", "must be a tar.gz or zip"),
        (archive()[:-9], "must be a whole tar.gz or zip"),
        (gzip.compress(bytes(10_240), mtime=0), "must hold a file"),
        (archive("../../token"), "must hold relative names without .."),
    ):
        problem = upload(server, content, status=422)
        assert problem["type"] == "/problems/invalid-bundle", rule
        (error,) = problem["errors"]
        assert (error["field"], error["rule"]) == ("body", rule)
        assert error["hint"]
    assert names_in(server.state.home.bundles) == []


def test_a_bundle_that_is_too_large_is_rejected_with_and_without_its_length(server: ApiServer) -> None:
    content = os.urandom(MAX_BUNDLE_BYTES + 1)

    def chunks() -> Iterator[bytes]:
        for begin in range(0, len(content), 100_000):
            yield content[begin : begin + 100_000]

    for sent in (content, chunks()):
        answer = server.api.post(PATH, content=sent, headers=GZIP)
        assert (answer.status_code, "bundle_bytes" in answer.json()["detail"]) == (413, True)
    bundles = server.state.home.bundles
    assert not bundles.exists() or names_in(bundles) == []


def test_an_archive_that_is_sent_without_its_type_is_known_by_its_bytes(server: ApiServer) -> None:
    for sent_as, content in (("", b"1"), ("application/octet-stream", b"2")):
        upload(server, archive(content=content), **{"Content-Type": sent_as})
        upload(server, b"no archive", status=422, **{"Content-Type": sent_as})


def test_only_archives_are_taken_and_only_from_those_who_have_the_token(server: ApiServer) -> None:
    for wrong in ("text/plain", "multipart/form-data; boundary=x"):
        problem = upload(server, archive(), status=415, **{"Content-Type": wrong})
        assert "application/gzip" in problem["detail"]
    assert server.stranger.post(PATH, content=archive(), headers=GZIP).status_code == 401
    assert not server.state.home.bundles.exists()


def test_an_unknown_bundle_is_rejected_with_field_rule_value_and_hint(server: ApiServer) -> None:
    for bundle in (NOBODY, "sha256:xyz", "", "../runs", "0" * 64, "sha256:" + "A" * 64):
        error = refusal(server, job_of({"bundle": bundle}))
        assert (error["field"], error["value"]) == ("code.bundle", bundle)
        assert error["rule"] == "must be the id of a bundle that this server has"
        assert "POST /api/v1/bundles" in error["hint"]


def test_a_script_that_the_bundle_lacks_is_rejected_with_what_it_has(server: ApiServer) -> None:
    bundle = upload(server, archive())["id"]
    error = refusal(server, job_of({"bundle": bundle}, script="tran.py"))
    assert (error["field"], error["hint"]) == ("script", "found there: train.py")
    assert bundle in error["rule"]


def test_an_experiment_takes_a_bundle_and_names_its_field_as_in_the_request(server: ApiServer) -> None:
    bundle = upload(server, archive())["id"]
    request = {"name": "lr", "base": job_of({"bundle": bundle}), "matrix": {"--lr": [1, 2]}}
    answer = server.api.post("/api/v1/experiments", json=request)
    assert answer.status_code == 201, answer.text
    assert [job.spec.code for job in server.state.store.lists.jobs()] == [{"bundle": bundle}] * 2
    request["base"] = job_of({"bundle": NOBODY})
    (error,) = server.api.post("/api/v1/experiments", json=request).json()["errors"]
    assert error["field"] == "base.code.bundle"


def prune(server: ApiServer) -> None:
    pruner = server.state.retention
    assert pruner.prune(pruner.rules)[1] == []


def test_a_bundle_of_no_job_is_removed_when_it_is_old(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    home = server.state.home
    used, unused, fresh = (upload(server, archive(content=text))["id"] for text in (b"1", b"2", b"3"))
    job = server.api.post(JOBS, json=job_of({"bundle": used})).json()
    long_ago = time.time() - 8 * 24 * 3600
    for old in (used, unused):
        os.utime(home.bundles / old.removeprefix("sha256:"), (long_ago, long_ago))
    prune(server)
    assert names_in(home.bundles) == sorted(each.removeprefix("sha256:") for each in (used, fresh))
    server.move(job, JobState.CANCELLED)
    assert server.api.delete(f"{JOBS}/{job['id']}").status_code == 204
    prune(server)
    assert names_in(home.bundles) == [fresh.removeprefix("sha256:")]


def test_using_a_bundle_keeps_it_and_what_a_killed_server_left_half_received_is_swept(server: ApiServer) -> None:
    home = server.state.home
    bundle = upload(server, archive())["id"]
    os.utime(home.bundles / bundle.removeprefix("sha256:"), (1, 1))
    assert Bundles(home).directory(bundle) is not None
    (home.bundles / ".half-done-abc" / "code").mkdir(parents=True)
    recover_on_startup(home, server.state.store)
    prune(server)
    assert names_in(home.bundles) == [bundle.removeprefix("sha256:")]


def test_a_disk_that_takes_no_upload_is_a_problem_for_later(server: ApiServer) -> None:
    server.state.home.bundles.write_text("not a directory")
    answer = server.api.post(PATH, content=archive(), headers=GZIP)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


# --- git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path / "repository"
    directory.mkdir()
    (directory / "train.py").write_text("print('main')\n")
    git(directory, "init", "--quiet", "--initial-branch=main")
    commit(directory, "first")
    git(directory, "checkout", "--quiet", "-b", "wild")
    (directory / "train.py").write_text("print('wild')\n")
    commit(directory, "second")
    git(directory, "checkout", "--quiet", "main")
    return directory


def git(directory: Path, *words: str) -> str:
    names = ("-c", "user.name=t", "-c", "user.email=t@t")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", "-C", str(directory), *names, *words], env=kept, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(directory: Path, message: str) -> None:
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "-m", message)


@pytest.mark.parametrize("ref", [None, "wild", "commit"])
def test_code_comes_from_the_ref_in_git_and_its_commit_is_recorded(
    server: ApiServer, repository: Path, ref: str | None
) -> None:
    head = git(repository, "rev-parse", "main" if ref is None else "wild")
    asked = {"git": f"file://{repository}"} | ({} if ref is None else {"ref": head if ref == "commit" else ref})
    answer = server.api.post(JOBS, json=job_of(asked))
    assert answer.status_code == 201, answer.text
    assert answer.json()["code"] == {**asked, "commit": head}
    copied = server.run_dir(answer.json()).code
    assert (copied / "train.py").read_text() == ("print('main')\n" if ref is None else "print('wild')\n")
    assert names_in(copied) == ["train.py"]
    assert names_in(server.state.home.runs) == [answer.json()["id"]]


def test_what_git_cannot_fetch_or_must_not_see_is_rejected(server: ApiServer) -> None:
    url, ref = "must be an https, ssh or file URL without a password", "must be a branch, a tag or a full commit id"
    for code, field, rule in (
        ({"git": "ext::sh -c touch% /tmp/pwned"}, "git", url),
        ({"git": "--upload-pack=touch /tmp/pwned"}, "git", url),
        ({"git": "-oProxyCommand=x@host:path"}, "git", url),
        ({"git": "ssh://-oProxyCommand=x/path"}, "git", url),
        ({"git": "ssh://x@-oProxyCommand=x/path"}, "git", url),
        ({"git": "https://user:secret@host/x.git"}, "git", url),
        ({"git": "http://127.0.0.1/x.git"}, "git", url),
        ({"git": "file:///nowhere", "ref": "--exec=x"}, "ref", ref),
        ({"git": "file:///nowhere", "ref": "a:b"}, "ref", ref),
        ({"git": "file:///nowhere"}, "git", "must be a repository and ref that git can fetch"),
    ):
        error = refusal(server, job_of(code))
        assert (error["field"], error["rule"]) == (f"code.{field}", rule)
        assert error["value"] == re.sub(r"[^/@]+@", "•••@", code[field])  # may be a password


def test_an_unknown_ref_is_rejected_with_the_message_of_git(server: ApiServer, repository: Path) -> None:
    error = refusal(server, job_of({"git": f"file://{repository}", "ref": "nope"}))
    assert "nope" in error["hint"]


def test_neither_hooks_nor_submodules_of_a_repository_run_or_come_along(
    server: ApiServer, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = tmp_path / "templates" / "hooks"
    templates.mkdir(parents=True)
    (templates / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    (templates / "post-checkout").chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[init]\n\ttemplateDir = {templates.parent}\n[core]\n\thooksPath = {templates}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("HOME", str(tmp_path))
    settings.rename(tmp_path / ".gitconfig")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", f"file://{repository}", "inner")
    (tmp_path / "hook-ran").unlink(missing_ok=True)
    commit(repository, "with a submodule")
    (tmp_path / "hook-ran").unlink(missing_ok=True)
    answer = server.api.post(JOBS, json=job_of({"git": f"file://{repository}"}))
    assert answer.status_code == 201, answer.text
    assert list((server.run_dir(answer.json()).code / "inner").iterdir()) == []
    assert not (tmp_path / "hook-ran").exists()
