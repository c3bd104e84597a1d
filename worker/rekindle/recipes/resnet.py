"""Residual networks for small images."""

from collections.abc import Iterator

import torchvision
from torch import Tensor, nn


class Residual(nn.Module):
    """Two convolutions beside a shortcut; halves the image where the width changes."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        stride = 1 if width_in == width else 2
        self.body = nn.Sequential(
            *_normalised(width_in, width, stride),
            nn.ReLU(),
            *_normalised(width, width, 1),
        )
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(width_in, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x) + self.shortcut(x)
        return y.relu()


def small_resnet(classes: int, *, channels: int = 1, width: int = 16, blocks: int = 2) -> nn.Sequential:
    """Three stages of ``blocks`` blocks, each twice as wide as the one before; then the mean over the image."""
    stages = [width, 2 * width, 4 * width]
    return nn.Sequential(
        *_normalised(channels, width, 1),
        nn.ReLU(),
        *_blocks(stages, blocks),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(stages[-1], classes),
    )


def resnet34(classes: int, *, channels: int = 3) -> nn.Sequential:
    """torchvision's ResNet-34 with the stem for CIFAR: it begins at full size, where ImageNet's begins at a quarter."""
    resnet = torchvision.models.resnet34(num_classes=classes)
    stem = nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
    stages = resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4
    blocks = [block for stage in stages for block in stage.children()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), resnet.fc)


def _blocks(stages: list[int], blocks: int) -> Iterator[nn.Module]:
    width_in = stages[0]
    for width in stages:
        for _ in range(blocks):
            yield Residual(width_in, width)
            width_in = width


def _normalised(width_in: int, width: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(width_in, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width)
