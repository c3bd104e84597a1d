"""The models that recipes can train, each a plain sequence of layers."""

from torch import nn

from rekindle.recipes.data import Shape
from rekindle.recipes.lenet import SIDE as LENET_SIDE
from rekindle.recipes.lenet import lenet
from rekindle.recipes.resnet import resnet34, small_resnet
from rekindle.recipes.transformer import transformer

MODELS = ("small-resnet", "resnet34", "lenet", "transformer")


def side_for(model: str) -> int | None:
    """The size that images must have for ``model``; None where any will do."""
    return LENET_SIDE if model == "lenet" else None


def build(model: str, shape: Shape) -> nn.Sequential:
    """A new ``model`` for images of ``shape``; its weights are drawn from torch's random numbers."""
    match model:
        case "small-resnet":
            return small_resnet(shape.classes, channels=shape.channels, width=32)
        case "resnet34":
            return resnet34(shape.classes, channels=shape.channels)
        case "lenet":
            return lenet(shape.classes, shape.channels)
        case "transformer":
            return transformer(shape.classes, channels=shape.channels, side=shape.side)
    raise ValueError(f"model must be one of {', '.join(MODELS)}, not {model!r}")
