"""Recipe: learn to balance a pole by reinforcement learning (REINFORCE); every rank plays its own episodes.

    torchrun --nproc-per-node 2 -m rekindle.recipes.rl
    rekindle submit --recipe rl --ranks 2

Only the episodes are divided among the ranks: ``Run`` seeds each rank differently, so each plays other episodes, and
DistributedDataParallel averages the gradients of all of them. A batch counts episodes; a step is one update.
"""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rekindle.recipes.catalog import Options
from rekindle.recipes.loop import model_hash, nan_hint, pause, print_line
from rekindle.recipes.training_context import BatchSize, start_recipe
from rekindle.training.run import Run

GAMMA = 0.99  # discount factor
UPDATES = 10  # per epoch
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


@dataclass(frozen=True, slots=True)
class Rollout:
    """Parallel episodes, as (steps, episodes); ``alive`` is 0 after an episode's end."""

    states: Tensor
    actions: Tensor
    alive: Tensor

    @property
    def mean_length(self) -> Tensor:
        return self.alive.sum(0).mean()


def main() -> None:
    with start_recipe("rl") as (options, world):
        policy = nn.Sequential(nn.Linear(OBSERVATIONS, 64), nn.Tanh(), nn.Linear(64, ACTIONS))
        optimizer = torch.optim.Adam(policy.parameters(), options.lr)
        batch = BatchSize(options, world.size, default=32)
        with Run(model=policy, optimizer=optimizer, seed=options.seed) as run, nan_hint(options.lr):
            print_line(run, f"episodes: {batch}")
            for _ in run.epochs(options.epochs):
                learn_epoch(run, optimizer, options, batch)
            print_line(run, f"weights sha256 {model_hash(run)}")


def learn_epoch(run: Run, optimizer: torch.optim.Optimizer, options: Options, batch: BatchSize) -> None:
    episodes = TensorDataset(torch.arange(UPDATES * batch.global_batch))  # only their number matters
    started, first, length = time.monotonic(), run.step, torch.zeros(())
    for (numbers,) in run.batches(episodes, global_batch=batch.global_batch):
        length = update(run, optimizer, len(numbers))
        pause(options.throttle)
    speed = (run.step - first) * batch.global_batch / (time.monotonic() - started)
    print_line(
        run,
        f"epoch {run.epoch} | batch {batch.global_batch} | steps {run.step} | lr {options.lr:.4f} | "
        f"mean length {length.item():.1f} | {speed:.0f} episodes/s",
    )


def update(run: Run, optimizer: torch.optim.Optimizer, episodes: int) -> Tensor:
    """Play, then make the actions with an above-average return more likely. Returns the mean length."""
    rollout = play(run.module, episodes, run.device)
    log_probabilities: Tensor = run.model(rollout.states).log_softmax(-1)
    taken = log_probabilities.gather(-1, rollout.actions[..., None]).squeeze(-1)
    loss = -(taken * advantages(rollout.alive) * rollout.alive).sum() / episodes
    optimizer.zero_grad()
    weighted: Tensor = loss * run.batch_weight
    weighted.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    optimizer.step()
    run.log(loss=loss, mean_length=rollout.mean_length)
    return rollout.mean_length


@torch.no_grad()
def play(policy: nn.Module, episodes: int, device: torch.device) -> Rollout:
    """Play until every pole has fallen, or for ``MAX_STEPS`` steps."""
    state = reset_carts(episodes).to(device)
    alive = torch.ones(episodes, dtype=torch.bool, device=device)
    played: list[tuple[Tensor, Tensor, Tensor]] = []
    while len(played) < MAX_STEPS and bool(alive.any()):
        action = torch.multinomial(policy(state).softmax(-1), 1).squeeze(-1)
        played.append((state, action, alive))
        state = move_carts(state, action)
        alive = alive & ~has_fallen(state)
    states, actions, masks = (torch.stack(each) for each in zip(*played, strict=True))
    return Rollout(states, actions, masks.float())


def advantages(alive: Tensor) -> Tensor:
    """Compute discounted returns (a reward of 1 per step), normalized over all steps that were played."""
    returns = torch.zeros_like(alive)
    following = torch.zeros_like(alive[0])
    for index in reversed(range(len(alive))):
        following = alive[index] + GAMMA * following * alive[index]
        returns[index] = following
    played = returns[alive > 0]
    return (returns - played.mean()) / (played.std() + 1e-6)


def reset_carts(carts: int) -> Tensor:
    """Draw the states of ``carts`` carts near rest, each a little different, from torch's random numbers."""
    return torch.rand(carts, OBSERVATIONS) * 0.1 - 0.05


def move_carts(state: Tensor, action: Tensor) -> Tensor:
    """Compute the state one time step later, by the equations of motion; ``action`` is 0 or 1 for each cart."""
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


def has_fallen(state: Tensor) -> Tensor:
    """True for each pole that has fallen, or whose cart has left the track."""
    return ~((state[..., 0].abs() < _MAX_POSITION) & (state[..., 2].abs() < _MAX_ANGLE))


if __name__ == "__main__":
    main()
