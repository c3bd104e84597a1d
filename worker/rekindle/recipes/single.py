"""Recipe: train on one device, as the reference that every other recipe should reproduce.

    python -m rekindle.recipes.single --epochs 20
    rekindle submit --recipe single --ranks 1

Nothing is distributed here. ``Run`` adds snapshots and exact resume; the training loop is in ``loop.py``.
"""

from rekindle.recipes import data_sets, models
from rekindle.recipes.loop import fit
from rekindle.recipes.training_context import TrainingContext, sgd, start_recipe
from rekindle.training.strategy import NoStrategy


def main() -> None:
    with start_recipe("single") as (options, world):
        images = data_sets.load(options, world)
        model = models.build(options.model, images.shape)
        context = TrainingContext(options, images, sgd(model, options), world.device, data_parallel_size=1)
        with context.run(model, NoStrategy(), scaler=context.scaler) as run:
            fit(run, context)


if __name__ == "__main__":
    main()
