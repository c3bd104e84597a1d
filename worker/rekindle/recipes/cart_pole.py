"""A pole on a cart, to be kept upright by pushing the cart left or right; the classic equations of motion."""

import math

import torch
from torch import Tensor

OBSERVED = 4  # position (m), speed (m/s), angle (rad), angular speed (rad/s)
ACTIONS = 2  # push left, push right
LONGEST = 200  # pushes; an episode that lasts so long is solved

_GRAVITY = 9.8  # m/s²
_CART, _POLE = 1.0, 0.1  # kg
_HALF_LENGTH = 0.5  # m, of the pole
_FORCE = 10.0  # N
_TICK = 0.02  # s
_EDGE = 2.4  # m from the middle
_FALLEN = math.radians(12)


def begin(carts: int) -> Tensor:
    """``carts`` carts near rest, each a little different; drawn from torch's random numbers."""
    return torch.rand(carts, OBSERVED) * 0.1 - 0.05


def push(state: Tensor, action: Tensor) -> Tensor:
    """The state one tick later; ``action`` is 0 or 1 for each cart."""
    place, speed, angle, spin = state.unbind(-1)
    force = (action.to(state.dtype) * 2 - 1) * _FORCE
    total, moment = _CART + _POLE, _POLE * _HALF_LENGTH
    sine, cosine = angle.sin(), angle.cos()
    pull = (force + moment * spin.square() * sine) / total
    twist = (_GRAVITY * sine - cosine * pull) / (_HALF_LENGTH * (4 / 3 - _POLE * cosine.square() / total))
    drive = pull - moment * twist * cosine / total
    return torch.stack(
        [place + _TICK * speed, speed + _TICK * drive, angle + _TICK * spin, spin + _TICK * twist], dim=-1
    )


def standing(state: Tensor) -> Tensor:
    """Whether each pole still stands and its cart is still on the track."""
    return (state[..., 0].abs() < _EDGE) & (state[..., 2].abs() < _FALLEN)
