"""Notifications to real receivers: an HTTP server that fails on request, and commands."""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from cli_process import rekindle
from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from job_examples import a_job, open_store
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.notifications import dispatcher
from rekindle_service.notifications.dispatcher import start_dispatchers
from rekindle_service.store import Store
from rekindle_service.store.tables import Counter, Job

_SECRET = "a secret of the tests"
_KILLED = Outcome(OutcomeClass.SIGNAL, "rank 1 was killed by SIGKILL", rank=1, signal="SIGKILL")
_DONE = Outcome(OutcomeClass.SUCCESS, "every rank was done")


@dataclass
class Post:
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


@dataclass
class Hook:
    """An HTTP server that answers with the next of ``answers``, then with 204."""

    url: str = ""
    posts: list[Post] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    def ids(self) -> list[str]:
        return [post.content["id"] for post in self.posts]


@contextmanager
def listening() -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = hook.answers.pop(0) if hook.answers else 204
            self.send_response(answer)
            if answer == 302:
                self.send_header("Location", hook.url)
            self.end_headers()
            hook.posts.append(Post(dict(self.headers), body))

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield hook
        server.shutdown()
        thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    with listening() as hook:
        yield hook


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(dispatcher, "_POLL_INTERVAL", 0.05)
    monkeypatch.setattr(dispatcher, "exponential_backoff", lambda *_, **__: 0.05)
    store = open_store(tmp_path)
    yield store
    store.close()


def webhook(hook: Hook, **more: Any) -> NotificationTarget:
    return NotificationTarget(**{"url": hook.url, "secret": _SECRET, "events": ["submitted"], **more})


@contextmanager
def notifying(store: Store, *targets: NotificationTarget) -> Iterator[None]:
    """Dispatchers that have set their cursors and notify of every later event."""
    close = start_dispatchers(store, targets)
    try:
        until(lambda: all(f"delivered:{each.key}" in cursors(store) for each in targets), "every receiver has a cursor")
        yield
    finally:
        close()


def cursors(store: Store) -> dict[str, int]:
    with store.reading() as session:
        return {row.name: row.value for row in session.exec(select(Counter))}


def await_delivery(store: Store, target: NotificationTarget, job: Job) -> None:
    """Wait until the event of the submission of ``job`` has been delivered or dropped."""
    event = store.events(job.id)[0].id
    until(lambda: cursors(store)[f"delivered:{target.key}"] >= event, "the event is delivered or dropped")


def test_a_webhook_gets_every_later_event_with_a_signature(store: Store, hook: Hook) -> None:
    store.add_job(a_job(name="before"))
    with notifying(store, webhook(hook)):
        job = store.add_job(a_job(name="digits"))
        until(lambda: hook.posts, "the webhook was called")
    (post,) = hook.posts
    assert (post.content["event"], post.content["job"]["id"], post.content["job"]["name"]) == (
        "submitted",
        job.id,
        "digits",
    )
    at = post.headers["Rekindle-Timestamp"]
    proof = hmac.new(_SECRET.encode(), at.encode() + b"." + post.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(post.headers["Rekindle-Signature"], f"sha256={proof}")
    assert abs(time.time() - int(at)) < 300
    assert post.headers["Rekindle-Event-Id"] == post.content["id"]


def test_a_failing_webhook_gets_every_event_again_in_order_and_delays_no_other_receiver(
    store: Store, hook: Hook
) -> None:
    hook.answers += [500, 503, 429]
    with listening() as other, notifying(store, webhook(hook), webhook(other)):
        jobs = [store.add_job(a_job()) for _ in range(3)]
        until(lambda: len(hook.posts) == 6, "three tries that failed, three that did not")
        until(lambda: len(other.posts) == 3, "the other one got all")
    ids = hook.ids()
    assert ids[0] == ids[1] == ids[2] == ids[3]
    assert [each.partition("-")[0] for each in ids[3:]] == [job.id for job in jobs]


@pytest.mark.parametrize("answer", [302, 404])
def test_a_redirect_is_not_followed_and_a_refusal_not_repeated(
    store: Store, hook: Hook, answer: int, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.answers.append(answer)
    with notifying(store, webhook(hook)):
        refused, next_one = (store.add_job(a_job()) for _ in range(2))
        until(lambda: len(hook.posts) == 2, "the second event arrived")
    assert [each.partition("-")[0] for each in hook.ids()] == [refused.id, next_one.id]
    logged = capsys.readouterr()
    assert "was dropped" in logged.out + logged.err
    assert _SECRET not in logged.out + logged.err


def test_an_event_that_could_not_be_delivered_is_delivered_once_by_the_next_server(store: Store, hook: Hook) -> None:
    hook.answers += [500] * 1000
    target = webhook(hook)
    with notifying(store, target):
        first = store.add_job(a_job())
        until(lambda: len(hook.posts) >= 2, "it was tried")
    hook.answers.clear()
    second = store.add_job(a_job())
    tried = len(hook.posts)
    with notifying(store, target):
        until(lambda: len(hook.posts) >= tried + 2, "both have arrived")
        await_delivery(store, target, second)
    assert [each.partition("-")[0] for each in hook.ids()[-2:]] == [first.id, second.id]
    arrived = len(hook.posts)
    with notifying(store, target):
        third = store.add_job(a_job())
        until(lambda: hook.ids()[-1].startswith(third.id), "the next one has arrived")
    assert len(hook.posts) == arrived + 1, "nothing is sent again"


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "hook.sh"
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o700)
    return str(path)


def test_a_command_gets_the_event_without_a_shell(store: Store, tmp_path: Path) -> None:
    got = tmp_path / "got"
    path = script(tmp_path, f'cat > {got}; echo "$1 $REKINDLE_EVENT $REKINDLE_JOB_ID" > {got}.env\n')
    target = NotificationTarget(command=(path, "$(touch owned); `id`"), events=("submitted",))
    with notifying(store, target):
        job = store.add_job(a_job(name="$(reboot)"))
        await_delivery(store, target, job)
    assert json.loads(got.read_text())["job"]["name"] == "$(reboot)"
    assert Path(f"{got}.env").read_text() == f"$(touch owned); `id` submitted {job.id}\n"


def test_a_command_that_hangs_is_killed_with_its_children_and_run_again(store: Store, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    path = script(tmp_path, f"echo $$ >> {tries}; [ $(wc -l < {tries}) -gt 2 ] || sleep 600\n")
    target = NotificationTarget(command=(path,), events=("submitted",), time_limit=0.5)
    with notifying(store, target):
        await_delivery(store, target, store.add_job(a_job()))
    assert len(tries.read_text().split()) == 3
    for pid in tries.read_text().split()[:2]:
        assert not Path("/proc", pid).exists()


def test_a_command_decides_by_its_exit_code_whether_it_is_run_again(store: Store, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    path = script(tmp_path, f"cat > /dev/null; echo x >> {tries}; [ $(wc -l < {tries}) -gt 2 ] && exit 3; exit 75\n")
    target = NotificationTarget(command=(path,), events=("submitted",))
    with notifying(store, target):
        await_delivery(store, target, store.add_job(a_job()))
    assert tries.read_text().count("x") == 3


def test_a_stop_of_the_server_does_not_wait_for_a_command(store: Store, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    target = NotificationTarget(
        command=(script(tmp_path, f"echo $$ > {begun}; sleep 600\n"),), events=("submitted",), time_limit=600
    )
    with notifying(store, target):
        job = store.add_job(a_job())
        until(lambda: begun.exists() and begun.read_text(), "the command runs")
    until(lambda: not Path("/proc", begun.read_text().strip()).exists(), "it was killed")
    assert cursors(store)[f"delivered:{target.key}"] < store.events(job.id)[0].id, "the next server runs it again"


def test_the_next_server_delivers_the_notifications_of_a_killed_one_and_shows_no_secret(home: Path, hook: Hook) -> None:
    (home / "rekindle.toml").write_text(f'[[notify]]\nurl = "{hook.url}"\nsecret = "{_SECRET}"\n')
    hook.answers += [503] * 1000
    server = ServeProcess(home)
    server.start()
    job = PlayedJob(home, "digits")
    try:
        job.begin_attempt()
        job.end_attempt(_KILLED, last_step=10)
        job.retry_in(0)
        until(lambda: hook.posts, "a delivery of the failure was tried")
        server.kill()
        hook.answers.clear()
        server.start()
        job.begin_attempt(resumed_from_step=10)
        job.end_attempt(_DONE, last_step=20)
        job.end(JobState.SUCCEEDED, _DONE)
        until(lambda: hook.posts[-1].content["event"] == "succeeded", "both have arrived")
    finally:
        job.close()
        server.stop()
    failure = [post.content for post in hook.posts if post.content["event"] == "attempt_failed"]
    assert failure[-1]["outcome"]["message"] == "rank 1 was killed by SIGKILL"
    assert {content["id"] for content in failure} == {failure[0]["id"]}
    assert _SECRET not in (home / "server.log").read_text()


def test_a_wrong_receiver_is_refused_without_showing_its_secret(home: Path) -> None:
    (home / "rekindle.toml").write_text(f'[[notify]]\nurl = "ftp://a.example"\nsecret = "{_SECRET}"\n')
    done = rekindle(home, "serve", "--port", "0")
    assert done.returncode == 2
    assert "notify.0.url" in done.stderr
    assert "must begin with https://" in done.stderr
    assert _SECRET not in done.stderr


def test_a_person_is_notified_of_their_own_jobs_as_their_chat_takes_it(store: Store, hook: Hook) -> None:
    chat = webhook(hook, secret=None, format="slack", owner="ann")
    with notifying(store, chat):
        for name, owner in (("other", "bob"), ("cnn", "ann"), ("nobody's", None), ("vit", "ann")):
            store.add_job(a_job(name=name, owner=owner))
        until(lambda: len(hook.posts) == 2, "both jobs of ann are notified")
    assert [post.content["text"].split()[0] for post in hook.posts] == ["cnn", "vit"]
    assert "Rekindle-Signature" not in hook.posts[0].headers


def test_doctor_says_which_channel_takes_a_test(home: Path, hook: Hook) -> None:
    hook.answers = [403]
    targets = [{"url": hook.url, "secret": _SECRET}, {"command": ["/bin/true"], "owner": "ann"}]
    done = rekindle(home, "doctor", "--notify", "-o", "json", variables={"REKINDLE_NOTIFY": json.dumps(targets)})
    refused, taken = json.loads(done.stdout)
    assert (done.returncode, refused["level"], taken["level"]) == (1, "problem", "ok")
    assert "HTTP 403" in refused["detail"]
    assert hook.posts[0].content["event"] == "test"
    assert _SECRET not in done.stdout
