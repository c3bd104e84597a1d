"""The models that recipes can train, convolutional networks and a transformer, each a plain sequence of layers."""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

HEADS = 4  # of the transformer's attention
_WIDTH = 32
_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model needs to know about the data."""

    classes: int
    channels: int
    side: int  # pixels; images are square


def build(model: str, shape: Shape) -> nn.Sequential:
    """Build a new ``model`` for images of ``shape``; its weights are drawn from torch's random numbers."""
    match model:
        case "small-resnet":
            return small_resnet(shape.classes, channels=shape.channels, width=32)
        case "resnet34":
            return resnet34(shape.classes, channels=shape.channels)
        case "lenet":
            return lenet(shape.classes, shape.channels)
        case "convnet":
            return convnet(shape.classes, shape.channels)
        case "transformer":
            return transformer(shape.classes, channels=shape.channels, side=shape.side)
    raise ValueError(f"unknown model {model!r}")


def lenet(classes: int, channels: int = 1) -> nn.Sequential:
    """LeNet as in the tutorials, for images of 28 x 28.

    Two convolutions, each followed by a pool, make 50 x 4 x 4 = 800 features; two linear layers follow.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 20, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def convnet(classes: int, channels: int) -> nn.Sequential:
    """Two convolutions of 64 channels, which recipe ``tensor`` splits, for images of any size."""
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


class ResidualBlock(nn.Module):
    """Two convolutions with a shortcut; halves the image where the width changes."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        stride = 1 if width_in == width else 2
        self.body = nn.Sequential(*_conv_norm(width_in, width, stride), nn.ReLU(), *_conv_norm(width, width, 1))
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(width_in, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x) + self.shortcut(x)
        return y.relu()


def small_resnet(classes: int, *, channels: int = 1, width: int = 16) -> nn.Sequential:
    """Three stages of two blocks, each twice as wide as the one before; then the mean over the image."""
    widths = [width, width, width, 2 * width, 2 * width, 4 * width, 4 * width]
    return nn.Sequential(
        *_conv_norm(channels, width, 1),
        nn.ReLU(),
        *(ResidualBlock(width_in, width) for width_in, width in pairwise(widths)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


def resnet34(classes: int, *, channels: int = 3) -> nn.Sequential:
    """torchvision's ResNet-34 with the stem for CIFAR: it starts at full size, where ImageNet's starts at a quarter."""
    resnet = torchvision.models.resnet34(num_classes=classes)
    stem = nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
    stages = resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4
    blocks = [block for stage in stages for block in stage.children()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), resnet.fc)


def _conv_norm(width_in: int, width: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(width_in, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width)


class PatchEmbedding(nn.Module):
    """Images (batch, channels, rows, columns) to tokens (batch, rows, width): a patch is one row of pixels."""

    def __init__(self, channels: int, side: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(channels * side, width)
        self.place = nn.Parameter(torch.randn(side, width) * 0.02)  # position embedding; snapshots hold this name

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.embed(images.transpose(1, 2).flatten(2)) + self.place
        return tokens


class Attention(nn.Module):
    """Multi-head self-attention. A rank may hold only some of the heads: their number follows from the data."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.merge = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        projected = (layer(tokens) for layer in (self.query, self.key, self.value))
        query, key, value = (each.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for each in projected)
        attended = scaled_dot_product_attention(query, key, value)
        merged: Tensor = self.merge(attended.transpose(1, 2).flatten(2))
        return merged


class TransformerBlock(nn.Module):
    """Attention, then two linear layers, each with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.widen_norm, self.widen = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.attention_norm(tokens))
        widened = self.widen(self.widen_norm(tokens)).relu()
        narrowed: Tensor = self.narrow(widened)
        return tokens + narrowed


class ClassifierHead(nn.Module):
    """Classifier of the mean over the tokens."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.norm(tokens.mean(1)))
        return logits


def transformer(classes: int, *, channels: int, side: int) -> nn.Sequential:
    """Build a transformer for images of ``side`` x ``side``."""
    blocks = (TransformerBlock(_WIDTH, HEADS) for _ in range(_BLOCKS))
    return nn.Sequential(PatchEmbedding(channels, side, _WIDTH), *blocks, ClassifierHead(_WIDTH, classes))
