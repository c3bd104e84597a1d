"""The cart-pole environment, batched: a pole is kept upright by pushing its cart left or right."""

import math

import torch
from torch import Tensor

OBSERVATIONS = 4  # position (m), velocity (m/s), angle (rad), angular velocity (rad/s)
ACTIONS = 2  # push left, push right
MAX_STEPS = 200  # an episode of this length is solved

_GRAVITY = 9.8  # m/s²
_CART_MASS, _POLE_MASS = 1.0, 0.1  # kg
_HALF_LENGTH = 0.5  # m, of the pole
_FORCE = 10.0  # N
_TIME_STEP = 0.02  # s
_MAX_POSITION = 2.4  # m from the middle
_MAX_ANGLE = math.radians(12)


def reset(carts: int) -> Tensor:
    """The states of ``carts`` carts near rest, each a little different; drawn from torch's random numbers."""
    return torch.rand(carts, OBSERVATIONS) * 0.1 - 0.05


def step(state: Tensor, action: Tensor) -> Tensor:
    """The state one time step later, by the equations of motion; ``action`` is 0 or 1 for each cart."""
    _, velocity, angle, spin = state.unbind(-1)
    force = (action.to(state.dtype) * 2 - 1) * _FORCE
    mass, moment = _CART_MASS + _POLE_MASS, _POLE_MASS * _HALF_LENGTH
    sine, cosine = angle.sin(), angle.cos()
    push = (force + moment * spin.square() * sine) / mass
    angular_acceleration = (_GRAVITY * sine - cosine * push) / (
        _HALF_LENGTH * (4 / 3 - _POLE_MASS * cosine.square() / mass)
    )
    acceleration = push - moment * angular_acceleration * cosine / mass
    derivatives = torch.stack([velocity, acceleration, spin, angular_acceleration], dim=-1)
    return state + _TIME_STEP * derivatives


def done(state: Tensor) -> Tensor:
    """Whether each pole has fallen or its cart has left the track."""
    return ~((state[..., 0].abs() < _MAX_POSITION) & (state[..., 2].abs() < _MAX_ANGLE))
