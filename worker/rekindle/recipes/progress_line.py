"""What a recipe says: one line for each epoch and rank, of this rank and of all together."""

import os
import sys

from rekindle.recipes.batch_size import BatchSize
from rekindle.recipes.tally import Score
from rekindle.training.run import Run


def say(run: Run, text: str) -> None:
    """In one write, so that lines of ranks that share a terminal do not mix."""
    sys.stdout.write(f"[rank {run.rank}] {text}\n")
    sys.stdout.flush()


def tell_epoch(
    run: Run, batch: BatchSize, lr: float, own: Score, all_ranks: Score, seconds: float, speed: float
) -> None:
    """Print both scores and log that of all ranks. ``speed`` in samples a second of all ranks.

    The load of the machine (mean number of runnable processes over one minute) tells how much the times are worth.
    """
    say(
        run,
        f"epoch {run.epoch} | batch {batch.of_all} | steps {run.step} | lr {lr:.4f} | {score(own)} | "
        f"{shared(batch, all_ranks)}{seconds:.1f} s | {speed:.0f} samples/s",
    )
    run.log(
        accuracy=all_ranks.accuracy,
        epoch_loss=all_ranks.loss,
        samples_per_second=speed,
        epoch_seconds=seconds,
        load=os.getloadavg()[0],
    )


def score(of: Score) -> str:
    return f"loss {of.loss:.4f} | acc {of.accuracy:.1%}"


def shared(batch: BatchSize, all_ranks: Score) -> str:
    """Nothing where every rank has seen all samples: then its own score is that of all."""
    return f"all ranks: {score(all_ranks)} | " if batch.sharers > 1 else ""
