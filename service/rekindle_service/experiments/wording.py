"""Results of experiments in words: pages and the command line show the same."""

from rekindle_service.experiments.comparison import BestResult
from rekindle_service.experiments.matrix import format_value


def result_text(result: BestResult) -> str:
    """``best val_accuracy 0.97 with --lr 0.1; all 0.91 to 0.97``."""
    low, high = significant(result.low), significant(result.high)
    if result.best is None:
        return f"{result.measure} {low}" if low == high else f"{result.measure} {low} to {high}"
    parameters = (result.parameters or {}).items()
    row = ", ".join(f"{name} {significant(v) if isinstance(v, float) else format_value(v)}" for name, v in parameters)
    return f"best {result.measure} {significant(result.best)}{row and f' with {row}'}; all {low} to {high}"


def significant(value: float) -> str:
    """Four significant digits; a whole number in full."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
