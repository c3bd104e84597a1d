"""What happened to a job, as lines of a terminal: the cause, the code around it, and what the ranks waited for."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from rekindle_service.cli.tables import cut_line, paragraph
from rekindle_service.client import RankGroup, Story, StoryFrame
from rekindle_service.sanitize import sanitize_line

STYLES = {"failure": "bold red", "hang": "bold red", "stop": "magenta"}
"""The kinds of stories that add something to the state of a job, and how their titles look."""

_TAB = 4  # cells
_MAX_MESSAGE_LINES = 12
_NOTES = {"current": "", "changed": ", changed since", "unreadable": ""}


def story_lines(console: Console, story: Story) -> Iterator[Text]:
    """Title, cause, frames of the user's code with their source, groups of ranks, same errors, and what to do."""
    yield from paragraph(console, Text(sanitize_line(story["title"]), STYLES.get(story["kind"], "bold")))
    for line in _message(story):
        yield from paragraph(console, line, indent=2)
    for frame in [each for each in story["frames"] if each["is_user"]] or story["frames"][:1]:
        yield from _frame(console, frame, indent=2)
    if folded := _folded(story):
        yield Text(f"  … and {folded} {'frame' if folded == 1 else 'frames'} of libraries", "dim")
    for group in story["groups"]:
        yield from _group(console, group)
    if story["same_error"]:
        others = ", ".join(f"#{each['number']} {sanitize_line(each['name'])}" for each in story["same_error"])
        yield from paragraph(console, f"The same error: {others}", indent=2, hanging=2)
    if story["next_step"]:
        yield from paragraph(console, Text(sanitize_line(story["next_step"]), "cyan"), indent=2)


def _message(story: Story) -> Sequence[str]:
    """The sentence line by line, and the message of the exception where the sentence is shorter."""
    text = story["sentence"]
    raised = story["exception"]
    if raised is not None and raised["message"] not in text:
        text = f"{raised['type']}: {raised['message']}"
    lines = [sanitize_line(line) for line in text.splitlines() if line.strip()]
    hidden = len(lines) - _MAX_MESSAGE_LINES
    return lines if hidden <= 0 else [*lines[:_MAX_MESSAGE_LINES], f"… and {hidden} more lines"]


def _folded(story: Story) -> int:
    users = sum(frame["is_user"] for frame in story["frames"])
    return len(story["frames"]) - (users or min(1, len(story["frames"]))) + story["hidden_frames"]


def _frame(console: Console, frame: StoryFrame, indent: int) -> Iterator[Text]:
    """``train.py:42 in main``, and the lines around it with the one of the frame marked."""
    note = _NOTES.get(frame["source_state"], "")
    where = Text(" " * indent).append(sanitize_line(f"{frame['file']}:{frame['line']}"), "bold")
    yield cut_line(console, where.append(f" in {sanitize_line(frame['function'])}{note}", "dim"))
    numbers = len(str(max((each["line"] for each in frame["source"]), default=0)))
    for each in frame["source"]:
        is_marked = each["line"] == frame["line"]
        text = sanitize_line(each["text"].expandtabs(_TAB).rstrip())
        line = Text(
            f"{' ' * indent}  {'>' if is_marked else ' '} {each['line']:>{numbers}}  ", "" if is_marked else "dim"
        )
        line.append(text, "bold" if is_marked else "dim").rstrip()
        yield cut_line(console, line)


def _group(console: Console, group: RankGroup) -> Iterator[Text]:
    """``ranks 0, 2-15 wait in all_reduce #11 at train.py:42``, and the code where it is the user's."""
    noun = "rank" if len(group["ranks"]) == 1 else "ranks"
    sentence = f"{noun} {rank_list(group['ranks'])} {sanitize_line(group['what'])}"
    yield from paragraph(console, Text(sentence, "bold"), indent=2)
    for frame in [each for each in group["frames"] if each["is_user"]][:1]:
        yield from _frame(console, frame, indent=4)


def rank_list(ranks: Sequence[int]) -> str:
    """``0, 2-15``: runs of at least three numbers as a range."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    shown = (f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in parts)
    return ", ".join(shown)
