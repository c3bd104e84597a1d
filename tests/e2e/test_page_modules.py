"""The page's pure modules, run in a browser as they are served."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

from e2e.played_job import PlayedJob

_SHOWN = """async (texts) => {
    const { TerminalText, runs } = await import("/static/terminal-text.js");
    const shown = (pieces) => {
        const terminal = new TerminalText();
        const rows = new Map();
        for (const piece of pieces) for (const row of terminal.write(piece)) rows.set(row.id, runs(row));
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
    assert page.evaluate(_SHOWN, [pieces for pieces, _ in _OUTPUT]) == [rows for _, rows in _OUTPUT]


def test_text_cut_anywhere_reads_as_one_piece(page: Page) -> None:
    text = "a\r\n\x1b[1;38;5;196mred\x1b[0m\x1b]8;;http://x\x1b\\link\x1b]8;;\x07\r\x1b[Kend\n"
    assert page.evaluate(_SHOWN, [list(text), [text]]) == [["a", "end"], ["a", "end"]]


def test_styles_come_from_a_fixed_set(page: Page) -> None:
    styles: list[str] = page.evaluate(
        """async () => {
            const { TerminalText } = await import("/static/terminal-text.js");
            const terminal = new TerminalText();
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


def test_events_are_read_from_pieces_of_any_size(page: Page) -> None:
    stream = 'event: hello\ndata: {"a":\ndata: 1}\n\n: ping\n\nid: 7\r\nevent: job\r\ndata: {}\r\n\r\ndata: last\n\n'
    read: list[list[Any]] = page.evaluate(
        """async (stream) => {
            const { EventParser } = await import("/static/sse.js");
            const read = (pieces) => {
                const parser = new EventParser();
                return pieces.flatMap((piece) => parser.push(piece));
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


def test_a_changed_subscription_goes_on_where_the_last_one_stood(page: Page, play: Callable[..., PlayedJob]) -> None:
    first, second = page.evaluate(
        """async (job) => {
            const { StreamHub } = await import("/static/stream-hub.js");
            const asked = [];
            const fetchIt = globalThis.fetch;
            globalThis.fetch = (url, options) => {
                if (String(url).includes("/events")) asked.push(new URL(url, location.href).searchParams);
                return fetchIt(url, options);
            };
            const { port1, port2 } = new MessageChannel();
            const hub = new StreamHub();
            hub.attach(port1);
            const live = (subscription) => new Promise((resolve) => {
                port2.onmessage = ({ data }) => data.type === "live" && resolve();
                port2.postMessage({ type: "subscribe", subscription });
            });
            await live({ job: null, log: null });
            await live({ job, log: null });
            port2.postMessage({ type: "leave" });
            globalThis.fetch = fetchIt;
            return asked.map((query) => query.get("last_event_id"));
        }""",
        play().id,
    )
    assert first is None
    assert re.fullmatch(r"[0-9]+", second), (
        "what happens while the one connection takes over from the other is not lost"
    )


def test_a_page_that_is_left_does_not_come_back_by_being_hidden(page: Page) -> None:
    """The browser tells it of both, and in this order."""
    told = page.evaluate(
        """() => {
            const told = [];
            const post = MessagePort.prototype.postMessage;
            MessagePort.prototype.postMessage = function (message) {
                told.push(message.type);
                return post.call(this, message);
            };
            dispatchEvent(new PageTransitionEvent("pagehide"));
            document.dispatchEvent(new Event("visibilitychange"));
            dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
            document.dispatchEvent(new Event("visibilitychange"));
            MessagePort.prototype.postMessage = post;
            return told;
        }"""
    )
    assert told == ["leave", "subscribe", "subscribe"]


def test_a_refresh_waits_for_the_one_before_and_for_somebody_who_looks(page: Page) -> None:
    begun = page.evaluate(
        """async () => {
            const { Refreshing } = await import("/static/refreshing.js");
            const begun = [];
            let count = 0;
            let finish = () => {};
            const refresh = () => {
                count += 1;
                return new Promise((resolve) => (finish = resolve));
            };
            const pause = () => new Promise((resolve) => setTimeout(resolve, 60));
            const look = async () => (await pause(), begun.push(count));
            const hide = (hidden) => {
                Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
                document.dispatchEvent(new Event("visibilitychange"));
            };
            hide(true);
            const refreshing = new Refreshing(refresh, 10);
            refreshing.now(); // the first one, though hidden
            await look();
            hide(false);
            for (const _ of [1, 2, 3]) { refreshing.soon(); refreshing.now(); }
            await look(); // none while one runs
            finish();
            await look(); // then one for all of them
            finish();
            hide(true);
            refreshing.soon();
            await look(); // none while nobody looks
            hide(false);
            await look();
            delete document.hidden;
            return begun;
        }"""
    )
    assert begun == [1, 1, 2, 2, 3]


def test_answers_are_shown_in_the_order_they_were_asked_for(page: Page) -> None:
    shown = page.evaluate(
        """async () => {
            const { newest } = await import("/static/newest.js");
            const answers = [];
            const shown = [];
            const ask = () => new Promise((resolve) => answers.push(resolve));
            const refetch = newest(ask, (answer) => shown.push(answer));
            const asked = [refetch(), refetch(), refetch()];
            answers[1]("second");
            await asked[1];
            answers[0]("first");
            await asked[0];
            refetch.tell("unasked");
            answers[2]("third");
            await asked[2];
            return shown;
        }"""
    )
    assert shown == ["second", "unasked"]


def test_drawing_anew_leaves_alone_what_is_the_same_and_keeps_the_focus(page: Page) -> None:
    kept, focused, texts = page.evaluate(
        """async () => {
            const { h, redraw } = await import("/static/dom.js");
            const list = h("ul");
            document.body.append(list);
            const item = (name, text) => h("li", {}, h("a", { href: "#", "data-focus": name }, text));
            redraw(list, [item("a", "1"), item("b", "1"), item("c", "1")]);
            const before = [...list.children];
            before[1].firstChild.focus();
            redraw(list, [item("a", "2"), item("b", "1")]);
            const kept = [...list.children].map((node) => before.includes(node));
            redraw(list, [item("new", "1"), item("a", "2"), item("b", "2")]);
            const focused = document.activeElement.dataset.focus;
            const texts = list.textContent;
            list.remove();
            return [kept, focused, texts];
        }"""
    )
    assert kept == [False, True]
    assert (focused, texts) == ("b", "122")


def test_a_curve_of_one_place_is_drawn_as_a_point(page: Page) -> None:
    drawn = """async (curves) => {
        const { drawnAs } = await import("/static/curve.js");
        return curves.map(drawnAs);
    }"""
    assert page.evaluate(drawn, [[19], [19, 19], [18, 19]]) == ["markers", "markers", "lines"]


def test_a_place_is_told_where_the_message_does_not_name_it(page: Page) -> None:
    cause = {"rank": 1, "file": "train.py", "line": 42}
    messages = ["boom", "Rank 1 raised ValueError at train.py:42: boom", "Rank 1 raised ValueError"]
    told = """async (outcomes) => {
        const { place } = await import("/static/format.js");
        return outcomes.map(place);
    }"""
    outcomes = [{**cause, "message": message} for message in messages]
    assert page.evaluate(told, outcomes) == ["rank 1 · train.py:42", "", "train.py:42"]


def test_only_what_was_done_again_is_superseded(page: Page) -> None:
    parts = page.evaluate(
        """async () => {
            const { Metrics } = await import("/static/series.js");
            const metrics = new Metrics();
            const points = (steps) => steps.map((step) => [step, 0, 0, 1]);
            metrics.load([
                { attempt: 1, name: "loss", points: points([1, 2, 3, 4]) },
                { attempt: 2, name: "loss", points: points([3, 4, 5, 6]) },
                { attempt: 3, name: "loss", points: points([2, 3]) },
            ]);
            metrics.append(3, [3, 4].map((step) => ({ step, epoch: 0, at: 0, values: { loss: 1 } })));
            const resumed = new Map([[1, 0], [2, 2], [3, 1], [4, 0]]);
            const steps = (points) => points.map(([step]) => step);
            return metrics.parts("loss", resumed).map((part) => [steps(part.kept), steps(part.redone)]);
        }"""
    )
    assert parts == [[[1], [2, 3, 4]], [[], [3, 4, 5, 6]], [[2, 3, 4], []]]
