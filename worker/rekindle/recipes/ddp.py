"""Recipe: train on several ranks with DistributedDataParallel, and lose nothing to a kill.

    torchrun --nproc-per-node 2 -m rekindle.recipes.ddp --epochs 20
    rekindle submit --recipe ddp --ranks 2

Every rank has the whole model and a share of each batch; the backward pass averages the gradients. Against recipe
``single`` there is nothing new in the loop: a step on k ranks computes what one rank would on the same batch.
Kill it whenever you like and start it again: it ends with the same weights to the last bit.
"""

from rekindle.recipes import data, models, options
from rekindle.recipes.batch_norm import synchronise
from rekindle.recipes.group import joined
from rekindle.recipes.loop import Plan, fit, make_repeatable, sgd
from rekindle.training.deterministic.deterministic_elastic import DeterministicElastic
from rekindle.training.run import Run
from rekindle.training.strategies.strategy import DDPStrategy, Strategy


def main() -> None:
    chosen = options.read_options(
        __doc__,
        *options.DATA,
        *options.SCHEDULE,
        *options.SHARED_BATCH,
        "accumulate",
        "sync-batchnorm",
        "find-unused-parameters",
        "deterministic-elastic",
        models=models.MODELS,
        precisions=("no", "bf16", "fp16"),
    )
    make_repeatable(chosen.seed)
    with joined() as world:
        images = data.load(chosen, world, side=models.side_for(chosen.model))
        model = models.build(chosen.model, images.shape)
        if chosen.sync_batchnorm:
            synchronise(model)
        plan = Plan(chosen, images, sgd(model, chosen), world.device, sharers=world.size)
        with Run(
            model=model,
            optimizer=plan.optimizer,
            scaler=plan.scaler,
            metrics=plan.tally.metrics,
            seed=chosen.seed,
            strategy=choose_strategy(chosen),
        ) as run:
            fit(run, plan)


def choose_strategy(chosen: options.Options) -> Strategy:
    """With virtual shards even the last bits do not depend on the number of ranks."""
    if chosen.deterministic_elastic is not None:
        return DeterministicElastic(chosen.deterministic_elastic)
    return DDPStrategy(find_unused_parameters=chosen.find_unused_parameters)


if __name__ == "__main__":
    main()
