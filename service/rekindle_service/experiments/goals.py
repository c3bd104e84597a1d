"""Whether lower or higher values of a metric are better, and which rows of a table have the best one. Pure."""

import re
from collections.abc import Sequence
from typing import Literal

Goal = Literal["min", "max"]

_LOW = (
    "loss error err errors wer cer mse rmse mae mape nll bpc bpb perplexity ppl fid kl "
    "ms us ns s sec seconds time latency duration memory load overhead"
)
_HIGH = (
    "acc accuracy acc1 acc5 top1 top5 f1 auc auroc precision recall map iou dice miou bleu rouge r2 score reward "
    "return psnr ssim snr mrr ndcg hits throughput speed goodput utilization"
)
_RATE = re.compile(r"(?:^|[^a-z])per[ _-]s(?:ec|econd)?(?:$|[^a-z])|/s(?:ec)?$")
_LOWER: Goal = "min"
_HIGHER: Goal = "max"
_GOALS = dict.fromkeys(_LOW.split(), _LOWER) | dict.fromkeys(_HIGH.split(), _HIGHER)
_WORD = re.compile(r"[a-z]+[0-9]*")


def guess_goal(metric: str) -> Goal | None:
    """From the words of its name, the last that says it: ``val_loss`` is to be low, ``steps_per_second`` high."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", metric).lower()
    if _RATE.search(name):
        return "max"
    return next((_GOALS[word] for word in reversed(_WORD.findall(name)) if word in _GOALS), None)


def best_rows(values: Sequence[float | None], goal: Goal | None) -> list[int]:
    """The indices of the rows with the best value; none where there is no goal, or where no row is worse."""
    known = [value for value in values if value is not None]
    if goal is None or not known or min(known) == max(known):
        return []
    best = min(known) if goal == "min" else max(known)
    return [index for index, value in enumerate(values) if value == best]
