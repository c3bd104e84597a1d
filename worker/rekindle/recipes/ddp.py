"""Recipe: train a small ResNet on handwritten digits with DistributedDataParallel, and lose nothing to a kill.

    torchrun --nproc-per-node 2 -m rekindle.recipes.ddp --epochs 20
    rekindle submit --recipe ddp --ranks 2

Kill it whenever you like and start it again: it ends with the same weights to the last bit.
"""

import argparse
import sys
import time

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from rekindle.recipes.digest import weights_sha256
from rekindle.recipes.digits import CLASSES, digits
from rekindle.recipes.resnet import small_resnet
from rekindle.training.run import Run


def main() -> None:
    options = parse()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(options.seed)
    train_set, test_set = digits()
    model = small_resnet(CLASSES, width=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    accuracy = MulticlassAccuracy(CLASSES, average="micro")
    with Run(model=model, optimizer=optimizer, scheduler=scheduler, metrics=accuracy, seed=options.seed) as run:
        for _ in run.epochs(options.epochs):
            accuracy.reset()
            loss = torch.zeros(())
            for images, labels in run.batches(train_set, global_batch=options.batch_size):
                loss = train_step(run, optimizer, accuracy, images, labels)
                time.sleep(options.throttle)
            say(run, progress(run, options.batch_size, optimizer.param_groups[0]["lr"], loss, accuracy))
            scheduler.step()
            run.log(test_accuracy=test_accuracy(run, test_set))
        say(run, f"test accuracy {test_accuracy(run, test_set):.4f}")
        say(run, f"weights sha256 {weights_sha256(model)}")


def train_step(
    run: Run, optimizer: torch.optim.Optimizer, accuracy: MulticlassAccuracy, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    logits = run.model(images)
    loss = cross_entropy(logits, labels)
    optimizer.zero_grad()
    (loss * run.batch_weight).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    optimizer.step()
    accuracy.update(logits, labels)
    run.log(loss=loss, lr=optimizer.param_groups[0]["lr"])
    return loss.detach()


def test_accuracy(run: Run, test_set: TensorDataset) -> float:
    """The exact accuracy: ranks evaluate shares of the test set that differ in size, without padding."""
    accuracy = MulticlassAccuracy(CLASSES, average="micro").to(run.device)
    with run.evaluation() as model:
        for images, labels in run.share(test_set, batch_size=256):
            accuracy.update(model(images), labels)
        return float(accuracy.compute())


def progress(run: Run, batch: int, lr: float, loss: torch.Tensor, accuracy: MulticlassAccuracy) -> str:
    """The loss is that of this rank's last batch, the accuracy that of all ranks over the epoch."""
    return (
        f"epoch {run.epoch} | batch {batch} | steps {run.step} | lr {lr:.4f} | "
        f"loss {loss.item():.4f} | acc {accuracy.compute().item():.1%}"
    )


def say(run: Run, text: str) -> None:
    """In one write, so that lines of ranks that share a terminal do not mix."""
    sys.stdout.write(f"[rank {run.rank}] {text}\n")
    sys.stdout.flush()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128, help="samples in a step of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--throttle", type=float, default=0.0, metavar="SECONDS", help="pause after each step, to watch"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
