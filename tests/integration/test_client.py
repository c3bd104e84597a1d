"""The Python client against a real server, blocking and asynchronous."""

import inspect
import io
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import own_loop
from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.client import AsyncClient, Client, Job, LogLine, NoServerError, ProblemError, Server, StreamEvent
from rekindle_service.config.settings import Settings

_DONE = Outcome(OutcomeClass.SUCCESS, "every rank was done")


@pytest.fixture
def job(served: ServeProcess) -> Iterator[PlayedJob]:
    played = PlayedJob(served.home, "digits")
    played.begin_attempt()
    yield played
    played.close()


def run(served: ServeProcess, body: Callable[[AsyncClient], Any]) -> Any:
    async def main() -> Any:
        async with AsyncClient.from_home(Settings(home=served.home)) as client:
            return await body(client)

    return own_loop.run(main)


def methods(kind: type) -> dict[str, list[str]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: list(map(str, inspect.signature(one).parameters.values()))
        for name, one in found
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    assert methods(Client) == methods(AsyncClient)


def test_an_asynchronous_client_submits_lists_refuses_and_uploads(served: ServeProcess, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hi')\n")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(tmp_path / "train.py", "train.py")
    packed.seek(0)

    async def body(client: AsyncClient) -> tuple[Job, list[str]]:
        bundle = await client.upload_bundle(packed)
        body = {"script": "train.py", "code": {"bundle": bundle}, "device": "cpu", "name": "asynchronous"}
        sent = await client.submit(body)
        await client.cancel(sent["id"])
        with pytest.raises(ProblemError) as refused:
            await client.job("nobody0000")
        assert refused.value.problem["status"] == 404
        return await client.wait(sent["id"]), [each["name"] async for each in client.jobs(name="asynchronous")]

    ended, names = run(served, body)
    assert (ended["state"], names) == ("cancelled", ["asynchronous"])


def test_logs_and_watch_end_with_the_job(served: ServeProcess, job: PlayedJob) -> None:
    job.write(b"one\ntwo\n", rank=1)
    job.end_attempt(_DONE, last_step=3)
    job.end(JobState.SUCCEEDED, _DONE)

    async def body(client: AsyncClient) -> tuple[list[str], list[str]]:
        states = [each["state"] async for each in client.watch(job.id)]
        lines = [item.text async for item in client.logs(job.id, follow=True) if isinstance(item, LogLine)]
        return states, lines

    states, lines = run(served, body)
    assert (states[-1], lines) == ("succeeded", ["one", "two"])
    with Client.from_home(Settings(home=served.home)) as client:
        assert client.wait(job.id)["state"] == "succeeded"
        assert [each.text for each in client.logs(job.id) if isinstance(each, LogLine)] == lines
        assert client.job_events(job.id)[-1]["to_state"] == "succeeded"


def test_logs_are_raw_to_the_last_byte_of_a_rank_that_was_killed_within_a_character(
    served: ServeProcess, job: PlayedJob
) -> None:
    written = b"\xff one\n" + "20 €".encode()[:-1]
    job.write(written)
    with Client.from_home(Settings(home=served.home)) as client:
        assert b"".join(each.raw for each in client.logs(job.id) if isinstance(each, LogLine)) == written
        assert client.log(job.id, 0, "stdout", 1, offset=0).data == written
        assert client.log_tail(job.id, 0, "stdout", 1, lines=1).data == written[6:]


def next_of(events: Iterator[StreamEvent], kind: str) -> StreamEvent:
    return next(event for event in events if event.kind == kind)


def test_events_resume_after_a_restart_of_the_server(served: ServeProcess, job: PlayedJob) -> None:
    changes: list[bool] = []
    with Client.from_home(Settings(home=served.home)) as client:
        events = client.events([job.id], ["0:stdout"], on_connection_change=lambda now, _: changes.append(now))
        assert next(events).kind == "hello"
        job.write(b"before\n")
        assert next_of(events, "log").data["text"] == "before\n"
        served.kill()
        job.report(0, step=7)
        served.start()
        assert next(event for event in events if event.kind == "job" and event.data["step"] == 7).data["id"] == job.id
        events.close()
    assert changes == [False, True]


def test_events_of_an_asynchronous_client_are_the_same(served: ServeProcess, job: PlayedJob) -> None:
    async def body(client: AsyncClient) -> list[str]:
        kinds: list[str] = []
        async for event in client.events([job.id], since=0):
            kinds.append(event.kind)
            if event.kind == "ranks":
                break
        return kinds

    kinds = run(served, body)
    assert kinds[0] == "hello"
    assert "job" in kinds


@contextmanager
def server_that(
    answer: Callable[[int, BaseHTTPRequestHandler], tuple[int, bytes] | None],
) -> Iterator[tuple[str, list]]:
    """Its URL, and the idempotency keys that it gets; ``answer``: status and body for the number of keys so far."""
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys.append(self.headers["Idempotency-Key"])
            if (answered := answer(len(keys), self)) is None:
                return
            status, body = answered
            self.send_response(status)
            self.send_header("Content-Type", "application/problem+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815  # as the library names it

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", keys
        finally:
            server.shutdown()


def test_a_submission_may_take_longer_than_the_timeout_and_is_sent_once() -> None:
    def copying(_count: int, _request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        time.sleep(0.5)  # a big directory
        return 201, b"{}"

    with server_that(copying) as (url, keys), Client(lambda: Server(url, "t"), timeout=0.1) as client:
        assert client.submit({}) == {}
    assert len(keys) == 1


def test_a_submission_that_the_server_still_processes_is_waited_for_after_a_lost_connection() -> None:
    def busy(count: int, request: BaseHTTPRequestHandler) -> tuple[int, bytes] | None:
        if count == 1:
            request.connection.shutdown(socket.SHUT_RDWR)
            return None
        return (201, b'{"id": "made"}') if count == 4 else (503, b'{"type": "/problems/busy", "status": 503}')

    with server_that(busy) as (url, keys), Client(lambda: Server(url, "t")) as client:
        assert client.submit({}) == {"id": "made"}
    assert len(keys) == 4
    assert len(set(keys)) == 1, "with another key there would be a second job"


def test_a_connection_that_is_lost_while_it_is_used_again_costs_no_reading_request_and_no_change_is_repeated() -> None:
    def closing(count: int, request: BaseHTTPRequestHandler) -> tuple[int, bytes] | None:
        if count % 2:
            request.connection.shutdown(socket.SHUT_RDWR)  # as a server that found it idle
            return None
        return 200, b'{"id": "a"}'

    with server_that(closing) as (url, sent), Client(lambda: Server(url, "t")) as client:
        assert client.job("a") == {"id": "a"}
        with pytest.raises(NoServerError):
            client.cancel("a")
    assert len(sent) == 3


def test_a_missing_server_and_a_wrong_token_are_errors_at_once(served: ServeProcess) -> None:
    with Client(lambda: Server("http://127.0.0.1:1", "t")) as nowhere:
        for request in (lambda: nowhere.job("x"), lambda: next(nowhere.events()), lambda: nowhere.wait("x")):
            with pytest.raises(NoServerError, match=r"127\.0\.0\.1:1 does not answer"):
                request()
    with Client(lambda: Server(served.url, "wrong")) as stranger:
        for request in (lambda: stranger.job("x"), lambda: next(stranger.events())):
            with pytest.raises(ProblemError, match="does not accept this token") as refused:
                request()
            assert "wrong" not in str(refused.value)


def test_a_reconnecting_client_survives_a_restart(served: ServeProcess, job: PlayedJob) -> None:
    changes: list[bool] = []
    with Client.from_home(Settings(home=served.home)) as client:
        patient = client.reconnecting(lambda now, _: changes.append(now))
        assert patient.job(job.id)["id"] == job.id
        served.kill()
        with pytest.raises(NoServerError):
            client.job(job.id)
        threading.Timer(1.0, served.start).start()
        assert [rank["rank"] for rank in patient.ranks(job.id)] == [0, 1]
        assert client.request("GET", "/jobs", params={"name": "digits", "limit": 1})["items"][0]["name"] == "digits"
    assert changes == [False, True]


def test_a_blocking_client_leaves_a_running_event_loop_alone(served: ServeProcess, job: PlayedJob) -> None:
    async def body(_: AsyncClient) -> str:
        with Client.from_home(Settings(home=served.home)) as blocking:
            return next(blocking.watch(job.id))["name"]

    assert run(served, body) == "digits"
