"""What happens to the scripts that people have: every shape interrupted in every way, as the table of a page.

    python tests/corpus/table.py [--only DIRECTORY ...] [--workers 2] [--output FILE]

Each shape is submitted unchanged to a server of its own, by the command line, twice: undisturbed; with rank, agent
and keeper killed in turn, drained and resumed, and the server killed. Writes the table into docs/evidence.md, or
into FILE. Takes about 15 minutes on two cores.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from corpus.shapes import SHAPES, Shape
from corpus.trial import Interruption, SubmitError, Trial, lab
from doc_pages import ROOT
from generated_sections import write_section

PAGE = ROOT / "docs" / "evidence.md"
ALL = sorted({shape.directory for shape in SHAPES})
NOTHING = "\N{EN DASH}"
KILLED = ("rank", "agent", "keeper")
HEADER = (
    "| script | saves | to add | rank, agent, keeper killed: in → resumes at | replayed "
    "| drained, then resumed | end |",
    "|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Row:
    """One shape with its jobs; ``refused`` where it could not be submitted.

    ``drained`` is a job of its own only where the killed one came to no drain.
    """

    shape: Shape
    undisturbed: Trial | None = None
    killed: Trial | None = None
    drained: Trial | None = None
    refused: str = ""

    def cells(self) -> Iterator[str]:
        yield self.shape.name
        yield self.shape.saves
        yield self.shape.added or ("nothing" if self.shape.resumes else NOTHING)
        if self.undisturbed is None or self.killed is None or self.drained is None:
            yield f"not possible: {self.refused}"
            yield from NOTHING * 3
            return
        yield kills(self.shape, self.killed)
        interrupted = [self.killed] if self.drained is self.killed else [self.killed, self.drained]
        yield replayed(self.shape, [each for trial in interrupted for each in trial.interruptions])
        yield drain(self.shape, self.drained)
        yield end(self.shape, self.undisturbed, interrupted)

    def __str__(self) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in self.cells()) + " |"


def kills(shape: Shape, trial: Trial) -> str:
    done = [each for each in trial.interruptions if each.kind in KILLED]
    if not done:
        return f"**{trial.state}**, undisturbed: {trial.reason}".rstrip(": ")
    arrows = [f"{each.before:g} → {each.after:g}" if each.after is not None else stopped(each) for each in done]
    return f"{shape.unit} " + ", ".join(arrows)


def stopped(each: Interruption) -> str:
    return f"**{each.state}** after a killed {each.kind} ({each.reason})"


def replayed(shape: Shape, done: Sequence[Interruption]) -> str:
    back = [each for each in done if each.kind != "server" and each.after is not None]
    if not back:
        return NOTHING
    if not shape.resumes and all(each.replayed >= shape.before_fault for each in back):
        return "everything"
    most = max(each.replayed for each in back)
    return f"at most {most} {shape.line or shape.unit}{'s' if most != 1 else ''}" if most else "nothing"


def drain(shape: Shape, trial: Trial) -> str:
    done = next((each for each in trial.interruptions if each.kind == "drain"), None)
    if done is None or done.before is None:
        return NOTHING
    if done.state != "queued":
        shown = f"**{done.state}** in {shape.unit} {done.before:g}"
    else:
        shown = f"held in {shape.unit} {done.before:g}"
    return f"{shown}, resumes at {done.after:g}" if done.after is not None else f"{shown}; {done.reason}"


def end(shape: Shape, undisturbed: Trial, others: Sequence[Trial]) -> str:
    """Whether the interrupted jobs have ended as the undisturbed one."""
    if undisturbed.missing:
        return f"**it does not print `{undisturbed.missing}`**"
    wrong = [f"**{each.state}**: {each.reason}".rstrip(": ") for each in others if each.state != "succeeded"]
    servers = [each for trial in others for each in trial.interruptions if each.kind == "server"]
    wrong += [stopped(each) for each in servers if each.state != "running"]
    if wrong:
        return "; ".join(dict.fromkeys(wrong))
    ends = [(each.last or "").partition(": ") for each in (undisturbed, *others)]
    early = [at for at, _, _ in ends if at != ends[0][0]]
    if early:
        return f"**called finished at {early[0]} instead of {ends[0][0]}**"
    if len(set(ends)) == 1:
        return "the same loss"
    return "**finished, another loss**" if shape.exact else "finished, another loss"


def examine(shape: Shape, directory: Path) -> Row:
    """The jobs of a shape, on a server of its own."""
    with lab(directory) as jobs:
        try:
            undisturbed = jobs.run(shape)
            if undisturbed.last is None:
                return Row(shape, undisturbed, undisturbed, undisturbed)
            killed = jobs.run(shape, [*KILLED, "drain", "server"])
            drained = killed if len(killed.interruptions) > len(KILLED) else jobs.run(shape, ["drain"])
            return Row(shape, undisturbed, killed, drained)
        except SubmitError as error:
            return Row(shape, refused=str(error))
        except Exception as error:  # noqa: BLE001  # the rows of the other shapes have taken many minutes
            return Row(shape, refused=f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}")


def table(shapes: Sequence[Shape], workers: int, directory: Path) -> Iterator[str]:
    yield from HEADER
    with ThreadPoolExecutor(workers) as pool:
        homes = [directory / str(number) for number, _ in enumerate(shapes)]
        for row in pool.map(examine, shapes, homes):
            yield str(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=ALL, default=ALL, metavar="DIRECTORY", help="shapes of these directories"
    )
    parser.add_argument("--workers", type=int, default=2, help="shapes at the same time")
    parser.add_argument("--output", type=Path, help="a file for the table, instead of the page")
    parser.add_argument("--homes", type=Path, help="directory that keeps the homes of the servers")
    options = parser.parse_args()
    shapes = [each for each in SHAPES if each.directory in options.only]
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        lines = []
        for line in table(shapes, options.workers, options.homes or Path(temporary)):
            print(line, flush=True)
            lines.append(line)
    if options.output is not None:
        options.output.write_text("".join(f"{line}\n" for line in lines))
    else:
        write_section("corpus", lines, PAGE)


if __name__ == "__main__":
    main()
