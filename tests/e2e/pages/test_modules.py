"""Modules of the pages, run in a browser as they are served."""

import re
import shlex
from typing import Any

from playwright.sync_api import Page

from e2e.played_job import Play
from rekindle_service.cli.job_request import OWN_OPTIONS
from rekindle_service.client import Client

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

_ONE_CHUNK = "a\r\n\x1b[1;38;5;196mred\x1b[0m\x1b]8;;http://x\x1b\\link\x1b]8;;\x07\r\x1b[Kend\n"
_OUTPUT = [
    (["one\ntwo\n"], ["one", "two"]),
    (["ab\rc\n"], ["cb"]),
    (["abc\b\bX\n"], ["aXc"]),
    (["a\tb\n"], ["a       b"]),
    (["\x1b[31", "mred\x1b", "[0m\n"], ["red"]),
    (["\x1b]0;title", " continued\x07text\n"], ["text"]),
    (["\x1b]0;never ended\ntext\n"], ["]0;never ended", "text"]),
    (["\x9b31mred\x9b0m \x9dtitle\x9cend\n"], ["red end"]),
    (["a\x00\x7f\n"], ["a^@^?"]),
    (["0123\r\x1b[2C\x1b[K|\n"], ["01|"]),
    (["a\nb\n\x1b[5Ax\n"], ["x", "b"]),
    (["y" * 4001 + "\n"], ["y" * 4000, "y"]),
    (["\x1b[999999999C!\n"], [" " * 3999 + "!"]),
    (["\x1bPdevice\x1b\\\x1b_application\x1b\\\x1b(Bplain\x1b=\n"], ["plain"]),
    ([_ONE_CHUNK], ["a", "end"]),
    (list(_ONE_CHUNK), ["a", "end"]),
]


def test_a_terminal_would_show_the_same(modules: Page) -> None:
    assert modules.evaluate(_SHOWN, [chunks for chunks, _ in _OUTPUT]) == [rows for _, rows in _OUTPUT]


def test_styles_come_from_a_fixed_set(modules: Page) -> None:
    styles: list[str] = modules.evaluate(
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


def test_events_are_read_from_chunks_of_any_size(modules: Page) -> None:
    stream = 'event: hello\ndata: {"a":\ndata: 1}\n\n: ping\n\nid: 7\r\nevent: job\r\ndata: {}\r\n\r\ndata: last\n\n'
    read: list[list[Any]] = modules.evaluate(
        """async (stream) => {
            const { EventParser } = await import("/static/events/shared-event-source.js");
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


def test_a_changed_subscription_continues_from_the_last_event(modules: Page, play: Play) -> None:
    first, second = modules.evaluate(
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


def test_a_tab_that_is_hidden_fetches_nothing_until_it_shows_its_job_again(modules: Page) -> None:
    received = modules.evaluate(
        """async () => {
            const { SharedEventSource } = await import("/static/events/shared-event-source.js");
            const fetchIt = globalThis.fetch;
            const events = 'event: hello\\ndata: {"version": 1}\\n\\nevent: job\\ndata: {"id": "other"}\\n\\n';
            const start = (body) => body.enqueue(new TextEncoder().encode(events));
            globalThis.fetch = async () => new Response(new ReadableStream({ start }));
            const { port1, port2 } = new MessageChannel();
            new SharedEventSource().attach(port1);
            const received = (job) => new Promise((resolve) => {
                const types = [];
                port2.onmessage = ({ data }) => types.push(data.type) && data.type === "event" && resolve(types);
                port2.postMessage({ type: "subscribe", subscription: { job, log: null } });
            });
            const types = [await received("a"), await received(null), await received("a")];
            port2.postMessage({ type: "leave" });
            globalThis.fetch = fetchIt;
            return types;
        }"""
    )
    assert received == [["live", "event"], ["event"], ["live", "event"]]


def test_a_page_that_is_left_does_not_come_back_by_being_hidden(modules: Page) -> None:
    """The browser reports both to it, and in this order."""
    sent = modules.evaluate(
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


def test_a_refresh_waits_for_the_one_before_and_for_a_visible_page(modules: Page) -> None:
    started = modules.evaluate(
        """async () => {
            const { DebouncedRefresh } = await import("/static/shared/timing.js");
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


def test_drawings_share_a_frame_and_those_of_a_stream_wait_for_their_interval(modules: Page) -> None:
    drawn = modules.evaluate(
        """async () => {
            const { inNextFrame } = await import("/static/shared/timing.js");
            const { Throttle } = await import("/static/shared/timing.js");
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


def test_answers_are_shown_in_the_order_of_their_requests(modules: Page) -> None:
    shown = modules.evaluate(
        """async () => {
            const { latestWins } = await import("/static/shared/timing.js");
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


def test_patching_keeps_equal_children_and_the_focus(modules: Page) -> None:
    kept, focused, texts = modules.evaluate(
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


def test_a_location_is_shown_where_the_message_does_not_name_it(modules: Page) -> None:
    cause = {"rank": 1, "file": "train.py", "line": 42}
    messages = ["boom", "Rank 1 raised ValueError at train.py:42: boom", "Rank 1 raised ValueError"]
    shown = """async (outcomes) => {
        const { failureLocation } = await import("/static/shared/format.js");
        return outcomes.map(failureLocation);
    }"""
    outcomes = [{**cause, "message": message} for message in messages]
    assert modules.evaluate(shown, outcomes) == ["rank 1 · train.py:42", "", "train.py:42"]


def test_only_steps_that_a_later_attempt_repeated_are_replayed(modules: Page) -> None:
    parts = modules.evaluate(
        """async () => {
            const { MetricStore } = await import("/static/charts/metric-store.js");
            const metrics = new MetricStore();
            const points = (steps) => steps.map((step) => [step, 0, 0, 1]);
            metrics.load([
                { attempt: 1, name: "loss", points: points([1, 2, 3, 4]) },
                { attempt: 2, name: "loss", points: points([3, 4, 5, 6]) },
                { attempt: 3, name: "loss", points: points([2, 3]) },
            ]);
            metrics.addNames([{ name: "loss", printed: null }]);
            metrics.append(3, [3, 4].map((step) => ({ step, epoch: 0, at: 0, values: { loss: 1 } })));
            const resumed = new Map([[1, 0], [2, 2], [3, 1], [4, 0]]);
            const steps = (points) => points.map(([step]) => step);
            return metrics.parts("loss", resumed).map((part) => [steps(part.kept), steps(part.replayed)]);
        }"""
    )
    assert parts == [[[1], [2, 3, 4]], [[], [3, 4, 5, 6]], [[2, 3, 4], []]]


def test_an_attempt_whose_script_loads_its_own_checkpoint_replays_from_its_first_point_on(modules: Page) -> None:
    parts = modules.evaluate(
        """async () => {
            const { MetricStore, resumeSteps } = await import("/static/charts/metric-store.js");
            const metrics = new MetricStore();
            const points = (steps) => steps.map((step) => [step, 0, 0, 1]);
            metrics.load([
                { attempt: 1, name: "loss", points: points([1, 2, 3]) },
                { attempt: 2, name: "loss", points: points([3, 4]) },
            ]);
            const ran = (number, path) => ({ number, resumed_from_step: null, resumed_from_path: path });
            const steps = (points) => points.map(([step]) => step);
            const kept = (resumed) => metrics.parts("loss", resumed).map((part) => steps(part.kept));
            return [null, "epoch_2.pt"].map((path) => kept(resumeSteps([ran(1, null), ran(2, path)])));
        }"""
    )
    assert parts == [[[], [3, 4]], [[1, 2], [3, 4]]]


def test_a_range_in_the_url_may_be_nonsense(modules: Page) -> None:
    kept = modules.evaluate(
        """async () => {
            const ranges = await import("/static/results/axis-range.js");
            const { formatRanges, parseRanges, rowsOutside, stopsOf, withMovedEnd } = ranges;
            const [lr, name] = [[0.1, 0.01, null, "1e-3"], ["b", "a", true, ""]];
            const dimensions = Object.entries({ lr, name }).map(([name, values]) => ({ name, values }));
            const outside = (...given) => [...rowsOutside(dimensions, parseRanges(given.map(JSON.stringify)))];
            const stops = stopsOf(dimensions[0]);
            return [
                outside(["lr", "0.01", "0.1"]), outside(["lr", "0.01", "0.1"], ["name", "a", "yes"]),
                outside(["lr", "x", "0.1"], ["name", "a"], ["lr", 1, 2], null, ["none", "a", "b"]),
                formatRanges(parseRanges(["{", '["lr","1","2"]'])),
                withMovedEnd(stops, null, "high", -1), withMovedEnd(stops, ["0.01", "0.01"], "low", 1),
                withMovedEnd(stops, ["0.01", "0.1"], "low", -1),
            ];
        }"""
    )
    assert kept == [[2, 3], [2, 3, 0], [], ['["lr","1","2"]'], ["1e-3", "0.01"], ["0.01", "0.01"], None]


def test_options_are_distinguished_from_their_values(modules: Page) -> None:
    parsed = modules.evaluate(
        """async (lines) => {
            const { parseArguments } = await import("/static/shared/job-parameters.js");
            return lines.map((args) => Object.fromEntries(parseArguments(args)));
        }""",
        [
            ["--lr", "0.1", "--verbose", "--seed=3", "data", "-n", "2"],
            ["--shift", "-0.5", "--", "--x=", "--tag", "a", "--tag", "b"],
            ["first", "second", "--flag"],
        ],
    )
    assert parsed == [
        {"--lr": "0.1", "--verbose": "yes", "--seed": "3", "argument 1": "data", "-n": "2"},
        {"--shift": "-0.5", "argument 1": "--", "--x": "", "--tag": "a b"},
        {"argument 1": "first", "argument 2": "second", "--flag": "yes"},
    ]


def test_no_two_parameters_of_a_job_share_a_label(modules: Page, client: Client, play: Play) -> None:
    job = client.job(play("labels").id)
    unusual = {"devices_per_rank": 2, "links": "required", "gpu_share": 0.5, "keep_links": True, "gitignore": True}
    unusual |= {"ranks": {"min": 1, "max": 2}, "resizable": False, "continue_from": job["id"], "continue_step": 3}
    unusual |= {"slurm": {"job_id": 7, "partition": "gpu"}, "time_limit": 60.0, "hang_timeout": 60.0}
    unusual |= {name: ["x"] for name in ("args", "on_restart", "after", "after_any", "watch", "exclude", "warnings")}
    environment = {"host": "h", "processor": "p", "cores": 1, "memory": 1, "system": "s", "python": "3"}
    recorded = {"directory": "/d", "code": {"digest": "d", "files": 1, "bytes": 1}, "environment": environment}
    labels = modules.evaluate(
        """async ([job, recorded]) => {
            const { recordedEntries, submittedEntries } = await import("/static/shared/job-parameters.js");
            return [...submittedEntries(job), ...recordedEntries(recorded)].map(([label]) => label);
        }""",
        [{**job, **unusual}, recorded],
    )
    assert {"NVLink between GPUs", "Keep links", "Continue job", "Resizable", "Slurm job", "Time limit"} <= set(labels)
    assert sorted(labels) == sorted(set(labels))


def test_a_copied_command_passes_a_script_its_own_options_that_submit_has_too(modules: Page) -> None:
    options = [*OWN_OPTIONS, "--ranks=2", "--", "--lr", "x"]
    commands = modules.evaluate(
        """async (options) => {
            const { asCommand } = await import("/static/shared/code-snippets.js");
            return options.map((option) => asCommand({ script: "train.py", args: [option] }).command);
        }""",
        options,
    )
    for option, command in zip(options, commands, strict=True):
        guard = [] if option in ("--lr", "x") else ["--"]
        words = command.replace("\\\n", " ").split()
        assert words == ["rekindle", "submit", "train.py", *guard, option]


def test_a_copied_command_has_every_field_of_a_job_on_slurm(modules: Page, client: Client, play: Play) -> None:
    unset = dict.fromkeys(("partition", "account", "qos", "time", "constraint"))
    given = {"mem": "32G", "gres": "gpu:2", "gpus_per_node": "a100:4", "prologue": ["module load x", "y"], "extra": []}
    slurm = {**unset, **given, "job_id": 7, "state": "RUNNING", "reason": None, "hosts": ["n1"]}
    body, command, shown = modules.evaluate(
        """async (job) => {
            const { asCommand, requestOf } = await import("/static/shared/code-snippets.js");
            const { submittedEntries } = await import("/static/shared/job-parameters.js");
            const body = requestOf(job);
            return [body, asCommand(body).command, Object.fromEntries(submittedEntries(job)).Slurm];
        }""",
        {**client.job(play("copied").id), "slurm": slurm},
    )
    assert body["slurm"] == {name: value for name, value in given.items() if value}
    options = ["--slurm-mem", "32G", "--gres", "gpu:2", "--gpus-per-node", "a100:4"]
    options += ["--slurm-prologue", "module load x", "--slurm-prologue", "y"]
    words = shlex.split(command.replace("\\\n", " "))
    assert [word for word in words if word in options] == options
    assert shown == ["1 node", "mem 32G", "gres gpu:2", "GPUs per node a100:4", "module load x", "y"]


def test_a_phase_keeps_its_colour_whatever_other_phases_are_shown_in_whatever_order(modules: Page) -> None:
    names = ["train", "epoch end", "compile", "tokenize", "warm up"]
    shown = [names, names[::-1], ["epoch end"], ["compile", "snapshot", "epoch end"]]
    colours = modules.evaluate(
        """async (lists) => {
            const { colourOfPhase } = await import("/static/job/axis/rank-lanes.js");
            const colours = (phases) => phases.map((name, index) => [name, colourOfPhase(phases, index)]);
            return lists.map((phases) => Object.fromEntries(colours(phases)));
        }""",
        shown,
    )
    assert len(set(colours[0].values())) == len(names)
    for found in colours[1:]:
        assert {name: colour for name, colour in found.items() if name in names} == {
            name: colours[0][name] for name in found if name in names
        }


def test_words_are_quoted_and_split_as_a_shell_does(modules: Page) -> None:
    words = ["plain", "two words", "it's", 'a "quote"', "$HOME", "back\\slash", "", "new\nline", "ünï", "*", "~", "#x"]
    text, back, odd = modules.evaluate(
        """async (words) => {
            const { join, split } = await import("/static/shared/shell-words.js");
            const text = join(words);
            return [text, split(text), split(`a\\\\ b "c\\\\"d" 'e\\\\f'g \\\\\\nh`)];
        }""",
        words,
    )
    assert shlex.split(text) == words
    assert back == words
    assert odd == ["a b", 'c"d', "e\\fg", "h"]


def test_an_answer_for_a_log_that_was_left_is_never_shown(modules: Page) -> None:
    shown = modules.evaluate(
        """async () => {
            const { LogWindow } = await import("/static/log/log-window.js");
            const shown = [];
            const renderer = { clear() {}, append: (text) => shown.push(text), oldest: null, latest: null };
            const fetchIt = globalThis.fetch;
            const requested = [];
            globalThis.fetch = () => new Promise((resolve) => requested.push(resolve));
            const next = async () => {
                while (!requested.length) await new Promise((resolve) => setTimeout(resolve, 1));
                return requested.shift();
            };
            const headers = { "X-Offset": "0", "X-Next-Offset": "7" };
            const answer = (text) => new Response(text, { headers });
            const log = new LogWindow("job", renderer);
            const first = log.open({ rank: 0, stream: "stdout", attempt: 1 });
            const answerFirst = await next();
            const second = log.open({ rank: 1, stream: "stdout", attempt: 1 });
            answerFirst(answer("rank 0\\n"));
            await first;
            (await next())(answer("rank 1\\n"));
            await second;
            globalThis.fetch = fetchIt;
            return shown;
        }"""
    )
    assert shown == ["rank 1\n"]


def test_what_a_script_prints_does_not_count_where_it_reports_the_same_metric(modules: Page) -> None:
    shown = modules.evaluate(
        """async () => {
            const { MetricStore } = await import("/static/charts/metric-store.js");
            const metrics = new MetricStore();
            metrics.addNames([{ name: "loss", printed: null }, { name: "acc", printed: {} }]);
            ["loss", "acc"].forEach((name) => metrics.track(name));
            const at = (step) => ({ step, epoch: 0, at: 0, values: { loss: step, acc: step } });
            metrics.append(1, [at(64)], true);
            const parts = (name) => metrics.parts(name, new Map([[1, 0]]));
            const steps = (name) => parts(name).flatMap(({ kept }) => kept.map(([step]) => step));
            const before = [steps("loss"), steps("acc")];
            return [before, metrics.append(1, [at(1), at(2)]), metrics.append(1, [at(3)]), steps("loss"), steps("acc")];
        }"""
    )
    assert shown == [[[], [64]], True, False, [1, 2, 3], [1, 2, 3]]


def test_points_that_the_stream_brought_before_a_late_answer_stay(modules: Page) -> None:
    steps = modules.evaluate(
        """async () => {
            const { MetricStore } = await import("/static/charts/metric-store.js");
            const metrics = new MetricStore();
            metrics.track("loss");
            metrics.append(1, [3, 4, 5].map((step) => ({ step, epoch: 0, at: 0, values: { loss: 1 } })));
            metrics.load([{ attempt: 1, name: "loss", points: [1, 2, 3, 4].map((step) => [step, 0, 0, 1]) }]);
            return metrics.parts("loss", new Map([[1, 0]]))[0].kept.map(([step]) => step);
        }"""
    )
    assert steps == [1, 2, 3, 4, 5]
