"""Recipe: learn to balance a pole by reinforcement learning (REINFORCE); every rank plays its own episodes.

    torchrun --nproc-per-node 2 -m rekindle.recipes.rl
    rekindle submit --recipe rl --ranks 2

Only the episodes are divided among the ranks: ``Run`` seeds each rank differently, so each plays other episodes, and
DistributedDataParallel averages the gradients of all of them. A batch counts episodes; a step is one update.
"""

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rekindle.recipes import cart_pole
from rekindle.recipes.catalog import Options
from rekindle.recipes.loop import nan_hint, pause
from rekindle.recipes.metrics import model_hash, print_line
from rekindle.recipes.training_context import BatchSize, start_recipe
from rekindle.training.run import Run

GAMMA = 0.99  # discount factor
UPDATES = 10  # per epoch


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
        policy = nn.Sequential(nn.Linear(cart_pole.OBSERVATIONS, 64), nn.Tanh(), nn.Linear(64, cart_pole.ACTIONS))
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
    """Play until every pole has fallen, or for ``cart_pole.MAX_STEPS`` steps."""
    state = cart_pole.reset(episodes).to(device)
    alive = torch.ones(episodes, dtype=torch.bool, device=device)
    played: list[tuple[Tensor, Tensor, Tensor]] = []
    while len(played) < cart_pole.MAX_STEPS and bool(alive.any()):
        action = torch.multinomial(policy(state).softmax(-1), 1).squeeze(-1)
        played.append((state, action, alive))
        state = cart_pole.step(state, action)
        alive = alive & ~cart_pole.done(state)
    states, actions, masks = (torch.stack(each) for each in zip(*played, strict=True))
    return Rollout(states, actions, masks.float())


def advantages(alive: Tensor) -> Tensor:
    """Discounted returns (a reward of 1 per step), normalized over all steps that were played."""
    returns = torch.zeros_like(alive)
    following = torch.zeros_like(alive[0])
    for index in reversed(range(len(alive))):
        following = alive[index] + GAMMA * following * alive[index]
        returns[index] = following
    played = returns[alive > 0]
    return (returns - played.mean()) / (played.std() + 1e-6)


if __name__ == "__main__":
    main()
