"""Recipe: train on one device; the first rung of the ladder, with which every other recipe should agree.

    python -m rekindle.recipes.single --epochs 20
    rekindle submit --recipe single --ranks 1

There is nothing distributed here. ``Run`` brings snapshots and exact resume, ``loop.py`` holds the training loop.
"""

from rekindle.recipes import data, models, options
from rekindle.recipes.group import joined, require_one_rank
from rekindle.recipes.loop import Plan, fit, make_repeatable, sgd
from rekindle.training.run import Run
from rekindle.training.strategies.strategy import NoStrategy


def main() -> None:
    chosen = options.read_options(
        __doc__,
        *options.DATA,
        *options.SCHEDULE,
        "accumulate",
        models=models.MODELS,
        precisions=("no", "bf16", "fp16"),
    )
    make_repeatable(chosen.seed)
    with joined() as world:
        require_one_rank(world, "single")
        images = data.load(chosen, world, side=models.side_for(chosen.model))
        model = models.build(chosen.model, images.shape)
        plan = Plan(chosen, images, sgd(model, chosen), world.device, sharers=1)
        with Run(
            model=model,
            optimizer=plan.optimizer,
            scaler=plan.scaler,
            metrics=plan.tally.metrics,
            seed=chosen.seed,
            strategy=NoStrategy(),
        ) as run:
            fit(run, plan)


if __name__ == "__main__":
    main()
