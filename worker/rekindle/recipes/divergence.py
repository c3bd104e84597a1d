"""What to do about a training that diverges, in words that fit a recipe."""

from collections.abc import Iterator
from contextlib import contextmanager

from rekindle.training.non_finite import NonFiniteError


@contextmanager
def advice(lr: float) -> Iterator[None]:
    """Let a NonFiniteError say which option of the recipe to turn."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(
            f"{error}. The recipe trained with --lr {lr:g}: give it a smaller one, or let it rise with --warmup-steps"
        ) from error
