"""LeNet as the tutorials have it, for images of 28 x 28."""

from torch import nn

SIDE = 28


def lenet(classes: int, channels: int = 1) -> nn.Sequential:
    """Two convolutions, each followed by a pool, make 50 x 4 x 4 = 800 features; two linear layers follow."""
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
