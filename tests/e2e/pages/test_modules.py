"""Modules of the pages, run in a browser as they are served."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

from e2e.played_job import PlayedJob

_SHOWN = """async (texts) => {
    const { TerminalEmulator, runs } = await import("/static/log/terminal-emulator.js");
    const shown = (chunks) => {
        const terminal = new TerminalEmulator();
        const rows = new Map();
        for (const chunk of chunks) for (const row of terminal.write(chunk)) rows.set(row.id, runs(row));
        return [...rows.values()].map((row) => row.map(({ text }) => text).join(""));
    };
    return texts.map(shown);
}"""


_OUTPUT = [
    (["one\ntwo\n"], ["one", "two"]),
    (["ab\rc\n"], ["cb"]),
    (["abc\b\bX\n"], ["aXc"]),
    (["a\tb\n"], ["a       b"]),
    (["\x1b[31", "mred\x1b", "[0m\n"], ["red"]),
    (["\x1b]0;title", " goes on\x07text\n"], ["text"]),
    (["\x1b]0;never ended\ntext\n"], ["]0;never ended", "text"]),
    (["\x9b31mred\x9b0m \x9dtitle\x9cend\n"], ["red end"]),
    (["a\x00\x7f\n"], ["a^@^?"]),
    (["0123\r\x1b[2C\x1b[K|\n"], ["01|"]),
    (["a\nb\n\x1b[5Ax\n"], ["x", "b"]),
    (["y" * 4001 + "\n"], ["y" * 4000, "y"]),
    (["\x1b[999999999C!\n"], [" " * 3999 + "!"]),
    (["\x1bPdevice\x1b\\\x1b_application\x1b\\\x1b(Bplain\x1b=\n"], ["plain"]),
]


def test_a_terminal_would_show_the_same(page: Page) -> None:
    assert page.evaluate(_SHOWN, [chunks for chunks, _ in _OUTPUT]) == [rows for _, rows in _OUTPUT]


def test_text_cut_anywhere_reads_as_one_chunk(page: Page) -> None:
    text = "a\r\n\x1b[1;38;5;196mred\x1b[0m\x1b]8;;http://x\x1b\\link\x1b]8;;\x07\r\x1b[Kend\n"
    assert page.evaluate(_SHOWN, [list(text), [text]]) == [["a", "end"], ["a", "end"]]


def test_styles_come_from_a_fixed_set(page: Page) -> None:
    styles: list[str] = page.evaluate(
        """async () => {
            const { TerminalEmulator } = await import("/static/log/terminal-emulator.js");
            const terminal = new TerminalEmulator();
            const found = new Set();
            for (let code = 0; code < 300; code += 1) {
                for (const form of [`${code}`, `38;5;${code}`, `48;2;${code};0;${code}`, `1;${code};"><b`]) {
                    const rows = terminal.write(`\\x1b[${form}mx\\n`);
                    rows.forEach((row) => row.styles.forEach((style) => found.add(style)));
                }
            }
            return [...found];
        }"""
    )
    allowed = {"bold", "dim", "italic", "underline", "inverse"}
    allowed |= {f"{layer}-{number}" for layer in ("fg", "bg") for number in range(16)}
    assert {name for style in styles for name in style.split()} <= allowed


def test_events_are_read_from_chunks_of_any_size(page: Page) -> None:
    stream = 'event: hello\ndata: {"a":\ndata: 1}\n\n: ping\n\nid: 7\r\nevent: job\r\ndata: {}\r\n\r\ndata: last\n\n'
    read: list[list[Any]] = page.evaluate(
        """async (stream) => {
            const { EventParser } = await import("/static/events/sse-reader.js");
            const read = (chunks) => {
                const parser = new EventParser();
                return chunks.flatMap((chunk) => parser.push(chunk));
            };
            return [read([stream]), read([...stream])];
        }""",
        stream,
    )
    expected = [
        {"event": "hello", "data": '{"a":\n1}', "id": None},
        {"event": "job", "data": "{}", "id": "7"},
        {"event": "message", "data": "last", "id": "7"},
    ]
    assert read == [expected, expected]


def test_a_changed_subscription_continues_from_the_last_event(page: Page, play: Callable[..., PlayedJob]) -> None:
    first, second = page.evaluate(
        """async (job) => {
            const { SharedEventSource } = await import("/static/events/shared-event-source.js");
            const requested = [];
            const fetchIt = globalThis.fetch;
            globalThis.fetch = (url, options) => {
                if (String(url).includes("/events")) requested.push(new URL(url, location.href).searchParams);
                return fetchIt(url, options);
            };
            const { port1, port2 } = new MessageChannel();
            new SharedEventSource().attach(port1);
            const live = (subscription) => new Promise((resolve) => {
                port2.onmessage = ({ data }) => data.type === "live" && resolve();
                port2.postMessage({ type: "subscribe", subscription });
            });
            await live({ job: null, log: null });
            await live({ job, log: null });
            port2.postMessage({ type: "leave" });
            globalThis.fetch = fetchIt;
            return requested.map((query) => query.get("last_event_id"));
        }""",
        play().id,
    )
    assert first is None
    assert re.fullmatch(r"[0-9]+", second), (
        "what happens while the one connection takes over from the other is not lost"
    )


def test_a_page_that_is_left_does_not_come_back_by_being_hidden(page: Page) -> None:
    """The browser tells it of both, and in this order."""
    sent = page.evaluate(
        """() => {
            const sent = [];
            const post = MessagePort.prototype.postMessage;
            MessagePort.prototype.postMessage = function (message) {
                sent.push(message.type);
                return post.call(this, message);
            };
            dispatchEvent(new PageTransitionEvent("pagehide"));
            document.dispatchEvent(new Event("visibilitychange"));
            dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
            document.dispatchEvent(new Event("visibilitychange"));
            MessagePort.prototype.postMessage = post;
            return sent;
        }"""
    )
    assert sent == ["leave", "subscribe", "subscribe"]


def test_a_refresh_waits_for_the_one_before_and_for_a_visible_page(page: Page) -> None:
    started = page.evaluate(
        """async () => {
            const { DebouncedRefresh } = await import("/static/shared/debounced-refresh.js");
            const started = [];
            let count = 0;
            let finish = () => {};
            const refresh = () => {
                count += 1;
                return new Promise((resolve) => (finish = resolve));
            };
            const pause = () => new Promise((resolve) => setTimeout(resolve, 60));
            const sample = async () => (await pause(), started.push(count));
            const hide = (hidden) => {
                Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
                document.dispatchEvent(new Event("visibilitychange"));
            };
            hide(true);
            const refreshing = new DebouncedRefresh(refresh, 10);
            refreshing.now(); // the first one, though hidden
            await sample();
            hide(false);
            for (const _ of [1, 2, 3]) { refreshing.soon(); refreshing.now(); }
            await sample(); // none while one runs
            finish();
            await sample(); // then one for all of them
            finish();
            hide(true);
            refreshing.soon();
            await sample(); // none while hidden
            hide(false);
            await sample();
            delete document.hidden;
            return started;
        }"""
    )
    assert started == [1, 1, 2, 2, 3]


def test_drawings_share_a_frame_and_those_of_a_stream_wait_for_their_interval(page: Page) -> None:
    drawn = page.evaluate(
        """async () => {
            const { inNextFrame } = await import("/static/shared/frame.js");
            const { Throttle } = await import("/static/shared/throttle.js");
            const drawn = [];
            const frame = () => new Promise((resolve) => requestAnimationFrame(() => resolve(drawn.splice(0))));
            const part = () => drawn.push("part");
            const throttle = new Throttle(() => {
                drawn.push("whole");
                inNextFrame(part);
                inNextFrame(part);
            }, 1e9);
            throttle.soon();
            throttle.soon();
            const first = await frame();
            throttle.soon();
            const second = await frame();
            throttle.now();
            throttle.now();
            return [first, second, await frame()];
        }"""
    )
    assert drawn == [["whole", "part"], [], ["whole", "part"]]


def test_answers_are_shown_in_the_order_of_their_requests(page: Page) -> None:
    shown = page.evaluate(
        """async () => {
            const { latestWins } = await import("/static/shared/latest-wins.js");
            const answers = [];
            const shown = [];
            const request = () => new Promise((resolve) => answers.push(resolve));
            const refetch = latestWins(request, (answer) => shown.push(answer));
            const requested = [refetch(), refetch(), refetch()];
            answers[1]("second");
            await requested[1];
            answers[0]("first");
            await requested[0];
            refetch.push("pushed");
            answers[2]("third");
            await requested[2];
            return shown;
        }"""
    )
    assert shown == ["second", "pushed"]


def test_patching_keeps_equal_children_and_the_focus(page: Page) -> None:
    kept, focused, texts = page.evaluate(
        """async () => {
            const { h, patchChildren } = await import("/static/shared/dom.js");
            const list = h("ul");
            document.body.append(list);
            const item = (name, text) => h("li", {}, h("a", { href: "#", "data-focus": name }, text));
            patchChildren(list, [item("a", "1"), item("b", "1"), item("c", "1")]);
            const before = [...list.children];
            before[1].firstChild.focus();
            patchChildren(list, [item("a", "2"), item("b", "1")]);
            const kept = [...list.children].map((node) => before.includes(node));
            patchChildren(list, [item("new", "1"), item("a", "2"), item("b", "2")]);
            const focused = document.activeElement.dataset.focus;
            const texts = list.textContent;
            list.remove();
            return [kept, focused, texts];
        }"""
    )
    assert kept == [False, True]
    assert (focused, texts) == ("b", "122")


def test_a_location_is_shown_where_the_message_does_not_name_it(page: Page) -> None:
    cause = {"rank": 1, "file": "train.py", "line": 42}
    messages = ["boom", "Rank 1 raised ValueError at train.py:42: boom", "Rank 1 raised ValueError"]
    shown = """async (outcomes) => {
        const { failureLocation } = await import("/static/shared/format.js");
        return outcomes.map(failureLocation);
    }"""
    outcomes = [{**cause, "message": message} for message in messages]
    assert page.evaluate(shown, outcomes) == ["rank 1 · train.py:42", "", "train.py:42"]


def test_only_steps_that_a_later_attempt_repeated_are_replayed(page: Page) -> None:
    parts = page.evaluate(
        """async () => {
            const { MetricStore } = await import("/static/charts/metric-store.js");
            const metrics = new MetricStore();
            const points = (steps) => steps.map((step) => [step, 0, 0, 1]);
            metrics.load([
                { attempt: 1, name: "loss", points: points([1, 2, 3, 4]) },
                { attempt: 2, name: "loss", points: points([3, 4, 5, 6]) },
                { attempt: 3, name: "loss", points: points([2, 3]) },
            ]);
            metrics.append(3, [3, 4].map((step) => ({ step, epoch: 0, at: 0, values: { loss: 1 } })));
            const resumed = new Map([[1, 0], [2, 2], [3, 1], [4, 0]]);
            const steps = (points) => points.map(([step]) => step);
            return metrics.parts("loss", resumed).map((part) => [steps(part.kept), steps(part.replayed)]);
        }"""
    )
    assert parts == [[[1], [2, 3, 4]], [[], [3, 4, 5, 6]], [[2, 3, 4], []]]
