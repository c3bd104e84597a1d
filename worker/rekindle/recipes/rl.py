"""Recipe: learn by trial and error (REINFORCE) to balance a pole; every rank plays its own episodes.

    torchrun --nproc-per-node 2 -m rekindle.recipes.rl
    rekindle submit --recipe rl --ranks 2

Nothing is divided but the playing: ``Run`` seeds each rank differently, so each meets other episodes, and
DistributedDataParallel averages the gradients of all of them. A batch counts episodes; a step is one update.
"""

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rekindle.recipes import cart_pole, options
from rekindle.recipes.batch_size import BatchSize
from rekindle.recipes.divergence import advice
from rekindle.recipes.group import joined
from rekindle.recipes.loop import digest, make_repeatable, pause
from rekindle.recipes.progress_line import say
from rekindle.training.run import Run

DISCOUNT = 0.99
UPDATES = 10  # in an epoch


@dataclass(frozen=True, slots=True)
class Played:
    """Episodes side by side, as (ticks, episodes); ``alive`` is 0 behind an episode's end."""

    states: Tensor
    actions: Tensor
    alive: Tensor

    @property
    def mean_length(self) -> Tensor:
        return self.alive.sum(0).mean()


def main() -> None:
    chosen = options.read_options(__doc__, "batch-size-per-rank", lr=0.01)
    make_repeatable(chosen.seed)
    with joined() as world:
        policy = nn.Sequential(nn.Linear(cart_pole.OBSERVED, 64), nn.Tanh(), nn.Linear(64, cart_pole.ACTIONS))
        optimizer = torch.optim.Adam(policy.parameters(), chosen.lr)
        batch = BatchSize.choose(chosen, world.size, default=32)
        with Run(model=policy, optimizer=optimizer, seed=chosen.seed) as run:
            learn(run, optimizer, chosen, batch)


def learn(run: Run, optimizer: torch.optim.Optimizer, chosen: options.Options, batch: BatchSize) -> None:
    say(run, f"episodes: {batch}")
    with advice(chosen.lr):
        for _ in run.epochs(chosen.epochs):
            learn_epoch(run, optimizer, chosen, batch)
    say(run, f"weights sha256 {digest(run)}")


def learn_epoch(run: Run, optimizer: torch.optim.Optimizer, chosen: options.Options, batch: BatchSize) -> None:
    episodes = TensorDataset(torch.arange(UPDATES * batch.of_all))  # only their number matters
    began, first, length = time.monotonic(), run.step, torch.zeros(())
    for (tickets,) in run.batches(episodes, global_batch=batch.of_all):
        length = update(run, optimizer, len(tickets))
        pause(chosen.throttle)
    speed = (run.step - first) * batch.of_all / (time.monotonic() - began)
    say(
        run,
        f"epoch {run.epoch} | batch {batch.of_all} | steps {run.step} | lr {chosen.lr:.4f} | "
        f"mean length {length.item():.1f} | {speed:.0f} episodes/s",
    )


def update(run: Run, optimizer: torch.optim.Optimizer, episodes: int) -> Tensor:
    """Play, then make the actions that led to more reward than usual more likely. Returns the mean length."""
    played = play(run.module, episodes, run.device)
    chances: Tensor = run.model(played.states).log_softmax(-1)
    chosen = chances.gather(-1, played.actions[..., None]).squeeze(-1)
    loss = -(chosen * advantages(played.alive) * played.alive).sum() / episodes
    optimizer.zero_grad()
    weighted: Tensor = loss * run.batch_weight
    weighted.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    optimizer.step()
    run.log(loss=loss, mean_length=played.mean_length)
    return played.mean_length


@torch.no_grad()
def play(policy: nn.Module, episodes: int, device: torch.device) -> Played:
    """Play until every pole has fallen, or for ``LONGEST`` ticks."""
    state = cart_pole.begin(episodes).to(device)
    alive = torch.ones(episodes, dtype=torch.bool, device=device)
    states: list[Tensor] = []
    actions: list[Tensor] = []
    lives: list[Tensor] = []
    while len(states) < cart_pole.LONGEST and bool(alive.any()):
        action = torch.multinomial(policy(state).softmax(-1), 1).squeeze(-1)
        states.append(state)
        actions.append(action)
        lives.append(alive)
        state = cart_pole.push(state, action)
        alive = alive & cart_pole.standing(state)
    return Played(torch.stack(states), torch.stack(actions), torch.stack(lives).float())


def advantages(alive: Tensor) -> Tensor:
    """Discounted ticks to come, against the mean of those that were played and in units of their spread."""
    to_come = torch.zeros_like(alive)
    following = torch.zeros_like(alive[0])
    for tick in reversed(range(len(alive))):
        following = alive[tick] + DISCOUNT * following * alive[tick]
        to_come[tick] = following
    played = to_come[alive > 0]
    return (to_come - played.mean()) / (played.std() + 1e-6)


if __name__ == "__main__":
    main()
