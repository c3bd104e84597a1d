"""Which samples each rank gets in which epoch, shown on eight integers with torch's DistributedSampler; no training.

    torchrun --nproc-per-node 2 -m rekindle.recipes.sample_order

Every rank prints its samples. Logs ``new_samples``: how many samples of the last epoch, on all ranks together, were on
another rank in the epoch before.
"""

import argparse

from torch.utils.data import DistributedSampler

from rekindle.recipes.training_context import process_group
from rekindle.training.reporter import report

SAMPLES, EPOCHS = 8, 2


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--no-set-epoch", action="store_true", help="forget sampler.set_epoch(epoch)")
    calls_set_epoch = not parser.parse_args().no_set_epoch
    with process_group() as world:
        sampler = DistributedSampler(range(SAMPLES), world.size, world.rank, shuffle=True)  # type: ignore[arg-type, var-annotated]  # any sized object will do
        epochs: list[list[int]] = []
        for epoch in range(EPOCHS):
            if calls_set_epoch:
                sampler.set_epoch(epoch)
            epochs.append(list(sampler))
            print(f"[rank {world.rank}] epoch {epoch}: {epochs[-1]}", flush=True)  # noqa: T201  # its purpose
        new = world.gather(len({*epochs[-1]} - {*epochs[-2]}))
        report(step=EPOCHS, new_samples=sum(new))


if __name__ == "__main__":
    main()
