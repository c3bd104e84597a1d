"""A small transformer for images: every row of pixels is a token."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

WIDTH = 32
HEADS = 4
BLOCKS = 2


class Rows(nn.Module):
    """Images (batch, channels, rows, columns) to tokens (batch, rows, width), each knowing its place."""

    def __init__(self, channels: int, side: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(channels * side, width)
        self.place = nn.Parameter(torch.randn(side, width) * 0.02)

    def forward(self, images: Tensor) -> Tensor:
        rows: Tensor = self.embed(images.transpose(1, 2).flatten(2)) + self.place
        return rows


class Attention(nn.Module):
    """Every head looks at all rows. A rank may hold some of the heads only: their number is read off the data."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.merge = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        parts = (layer(tokens) for layer in (self.query, self.key, self.value))
        query, key, value = (part.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in parts)
        seen = scaled_dot_product_attention(query, key, value)
        merged: Tensor = self.merge(seen.transpose(1, 2).flatten(2))
        return merged


class Block(nn.Module):
    """Attention, then two linear layers, each beside a shortcut."""

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


class Verdict(nn.Module):
    """The mean over the rows decides."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.norm(tokens.mean(1)))
        return logits


def transformer(classes: int, *, channels: int, side: int) -> nn.Sequential:
    """For images of ``side`` x ``side``."""
    blocks = (Block(WIDTH, HEADS) for _ in range(BLOCKS))
    return nn.Sequential(Rows(channels, side, WIDTH), *blocks, Verdict(WIDTH, classes))
