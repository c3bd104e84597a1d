"""Recipe: train on several ranks with DistributedDataParallel.

    torchrun --nproc-per-node 2 -m rekindle.recipes.ddp --epochs 20
    rekindle submit --recipe ddp --ranks 2

Every rank has the whole model and a shard of each batch; the backward pass averages the gradients. The loop is that of
recipe ``single``: a step on k ranks computes what one rank would on the same batch. Kill it at any time and start it
again: it ends with bit-identical weights.
"""

from rekindle.recipes import data, models
from rekindle.recipes.catalog import Options
from rekindle.recipes.loop import fit
from rekindle.recipes.sync_batchnorm import convert_sync_batchnorm
from rekindle.recipes.training_context import TrainingContext, sgd, start_recipe
from rekindle.training.deterministic_elastic import DeterministicElastic
from rekindle.training.method import Method, Replicas


def main() -> None:
    with start_recipe("ddp") as (options, world):
        images = data.load(options, world)
        model = models.build(options.model, images.shape)
        if options.sync_batchnorm:
            convert_sync_batchnorm(model)
        context = TrainingContext(options, images, sgd(model, options), world.device, data_parallel_size=world.size)
        with context.run(model, choose_method(options), scaler=context.scaler) as run:
            fit(run, context)


def choose_method(options: Options) -> Method:
    """With virtual shards the weights are bit-identical on any number of ranks."""
    if options.deterministic_elastic is not None:
        return DeterministicElastic(options.deterministic_elastic)
    return Replicas(find_unused_parameters=options.find_unused_parameters)


if __name__ == "__main__":
    main()
