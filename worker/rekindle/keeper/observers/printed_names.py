"""What the words before a printed number say that it is: a metric, a step, an epoch, or nothing that counts.

The words are those of public training scripts. Times, sizes, speeds, counts and settings are no metrics.
"""

import re
from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache

MAX_NAME = 80  # characters
_KEY = re.compile(r"[A-Za-z][\w./@%\- ()]*")
_POSITION = re.compile(r"@\d+(?=\s)")  # "Validation@50 loss"
_WORD = re.compile(r"[a-z]+\d*")


class Kind(Enum):
    """What a number is, by the words before it."""

    STEP = auto()
    EPOCH = auto()
    METRIC = auto()
    HYPER = auto()  # a metric where it comes with a step or another metric; else part of a configuration
    OTHER = auto()  # a metric where the rest of the line speaks for it
    INDEX = auto()  # the line is about one of several things
    NONE = auto()


METRIC_KINDS = (Kind.METRIC, Kind.HYPER, Kind.OTHER)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SPLITS = {
    "train": "", "training": "", "val": "val", "valid": "valid", "validation": "val", "validating": "val",
    "eval": "eval", "evaluation": "eval", "evaluating": "eval", "evaluator": "eval",
    "test": "test", "testing": "test", "dev": "dev",
}  # fmt: skip
"""Parts of the data by the words that name them, with the prefix of metrics that belong to them."""

_STEPS = _words(
    "step global_step train_step training_step current_step optimizer_step optim_step iter iteration global_iter"
    " train_iter training_iteration it itr batch batch_idx minibatch mini-batch num_updates total_timesteps timestep"
    " env_step update total_steps_so_far"
)
_OF_TRAINING = _words("global train training learning current optimizer update")
_NO_EPOCH = _words("best total num number max every last patience stop per save")
_INDICES = _words(
    "class classes fold layer head expert group sample image example query trial candidate beam actor agent label id"
    " tensor row idx index param"
)
_METRICS = _words(
    "loss losses acc accuracy top1 top5 acc1 acc5 prec precision recall f1 auc auroc map map50 map75 ap ap50 ap75 miou"
    " iou dice bleu rouge rouge1 rouge2 rougel ppl perplexity bpc bpb wer cer mse rmse mae nll kl elbo reward rewards"
    " return returns rew ret score lr error err psnr ssim fid entropy r2 mcc ce bce xent objective gnorm norm"
    " gradnorm top logloss auprc ndcg mrr hits hinge rmsle mape smape chrf meteor cider td advantage jaccard kappa"
    " l1 l2 logprob margin margins likelihood"
)
_HYPER = _words("lr learning rate wd weight decay momentum")
_MODIFIERS = _words(
    "avg average mean running smoothed best current ema final min max set batch mini epoch step grad gradient global"
    " moving median cumulative weighted macro micro total balanced pixel class student teacher aux lm mlm gen disc"
    " generator discriminator overall last training learning rate policy value critic"
) | frozenset(_SPLITS)
_NO_METRIC = _words(
    "time times sec secs second seconds ms minutes hours eta elapsed duration remaining wall date clock data dt size"
    " bytes mem memory gb mb kb ram cache alloc allocated reserved pid rank ranks port host node nodes gpu gpus cpu"
    " device cuda id version seed worker workers num number count counts len length bsz bs wps ups wpb tps fps qps"
    " speed throughput samples sample tokens token tok params parameters param layers layer dim epochs steps line"
    " lines file exit code signal attempt retry level args tflops flops mfu it iter ips consumed images instances"
    " thread threads dtype bits address skipped timesteps iterations iteration episodes episode_num updates util"
    " temp power watt progress left patience checkpoint ckpt index interval every freq start end shape width height"
    " context vocab heads embd block blocks per size py scheduler runtime beta betas eps dropout threshold ratio"
    " factor fraction support seen max_mem latency buffer budget limit page pages process processes job step epoch"
    " timestamp s v coef coeff coefficient dur cost warmup counter total_flos flos tracks percent gamma alpha delta"
    " tol tolerance walltime interacts interactions frames"
)
_SENTENCE = _words(
    "in of to at is the for took after from improved with on by than was has have and or saved saving using not did"
    " below above decreased increased reduced reducing becomes became if when until be are a an out about around"
    " nearly new had finished reached setting set_to between since"
)
_LIMITS = _words("min max base init initial warmup end final peak")
"""Words before a learning rate that make it a setting."""
_AVERAGES = _words("avg average mean running smoothed total")
_NEUTRAL = _words("step epoch batch token tokens sample per v")
"""Words that say nothing against a metric in its name."""


def is_known(word: str) -> bool:
    parts = _WORD.findall(word)
    return bool(parts) and (any(_is_metric(part) for part in parts) or all(part in _MODIFIERS for part in parts))


def _is_metric(word: str) -> bool:
    return word in _METRICS or word.rstrip("0123456789") in _METRICS or word.endswith("loss")


def split_of(text: str) -> str | None:
    """The prefix of metrics in the part of the data that ``text`` names last; None where it names none."""
    found = [_SPLITS[word] for word in re.findall(r"[a-z]+", text.lower()) if word in _SPLITS]
    return found[-1] if found else None


@lru_cache(maxsize=4096)
def classify(phrase: str, *, spaced: bool) -> tuple[str, Kind]:
    """The name and the kind of a number that ``phrase`` names. ``spaced``: words of a sentence may be before it."""
    if not phrase or len(phrase) > MAX_NAME or not _KEY.fullmatch(phrase):
        return "", Kind.NONE
    phrase = _POSITION.sub("", phrase)
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", phrase).lower()
    name = re.sub(r"[\s.]*\s[\s.]*|\.$|\(", "_", phrase.lower()).strip("_")
    words = _WORD.findall(split)
    if not words:
        return "", Kind.NONE
    if name in _STEPS or name.rpartition("/")[2] in _STEPS or split in _STEPS:
        return name, Kind.STEP
    if words[-1] in ("step", "iteration", "iter") and _OF_TRAINING.issuperset(words[:-1]):
        return name, Kind.STEP
    if words[-1] in ("epoch", "ep") and len(words) <= 4:
        return name, Kind.NONE if _NO_EPOCH & set(words) else Kind.EPOCH
    if words[0] == "epoch" and len(words) == 2 and words[1] in _SPLITS:
        return name, Kind.EPOCH if not _SPLITS[words[1]] else Kind.NONE
    if words[-1] in _INDICES and len(words) <= 2 and not any(map(_is_metric, words)):
        return name, Kind.INDEX
    return name, _metric_kind(words, len(phrase.split()) if spaced else 1)


def _metric_kind(words: Sequence[str], spaces: int) -> Kind:
    known = set(words)
    length_of_episode = known & {"ep", "eps", "episode", "rollout"} and known & {"len", "length", "ret", "rew"}
    if spaces > 4 or (known & _SENTENCE and spaces > 1):
        return Kind.NONE
    if words[-1] == "lr" and words[0] in _LIMITS:
        return Kind.NONE
    if known <= _HYPER | {"current", *_SPLITS} and known & {"lr", "learning", "wd", "decay", "momentum"}:
        return Kind.METRIC if "current" in known else Kind.HYPER
    if words[-1] in ("t", "weight") or words[0] == "target":  # "Data (t)" is a time, the others are settings
        return Kind.NONE
    metric = any(map(_is_metric, words)) or ("cost" in known and known <= {"cost", *_SPLITS, *_AVERAGES})
    against = known & _NO_METRIC - (_NEUTRAL if metric else frozenset())
    if against and not length_of_episode:
        return Kind.NONE
    if length_of_episode and not known & {"num", "total", "time"}:
        return Kind.METRIC
    return Kind.METRIC if metric else Kind.OTHER
