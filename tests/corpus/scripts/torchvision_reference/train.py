"""The shape of torchvision's classification reference: --output-dir with model_N.pth and checkpoint.pth, --resume."""

import argparse
import os
import time

import torch
import utils
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train_one_epoch(model, criterion, optimizer, loader, epoch, args):
    model.train()
    metric_logger = utils.MetricLogger()
    for image, target in metric_logger.log_every(loader, args.print_freq, f"Epoch: [{epoch}]"):
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.pause)
        metric_logger.update(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])


def evaluate(model, images, targets):
    model.eval()
    with torch.inference_mode():
        acc1 = (model(images).argmax(1) == targets).float().mean().item() * 100
    print(f"Test:  Acc@1 {acc1:.3f}")


def main(args):
    if args.output_dir:
        os.makedirs(args.output_dir, exist_ok=True)
    utils.init_distributed_mode(args)
    print(args)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    dataset = TensorDataset(images[:1024], labels[:1024])
    sampler = DistributedSampler(dataset) if args.distributed else torch.utils.data.RandomSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)
    model_without_ddp = model
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model)
        model_without_ddp = model.module
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu", weights_only=False)
        model_without_ddp.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])
        args.start_epoch = checkpoint["epoch"] + 1
    print("Start training")
    started = time.time()
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, loader, epoch, args)
        lr_scheduler.step()
        evaluate(model, images[1024:], labels[1024:])
        if args.output_dir:
            checkpoint = {
                "model": model_without_ddp.state_dict(),
                "optimizer": optimizer.state_dict(),
                "lr_scheduler": lr_scheduler.state_dict(),
                "epoch": epoch,
                "args": args,
            }
            utils.save_on_master(checkpoint, os.path.join(args.output_dir, f"model_{epoch}.pth"))
            utils.save_on_master(checkpoint, os.path.join(args.output_dir, "checkpoint.pth"))
    print(f"Training time {time.time() - started:.0f}")


def get_args_parser():
    parser = argparse.ArgumentParser(description="PyTorch Classification Training")
    parser.add_argument("-b", "--batch-size", default=128, type=int, help="images per process")
    parser.add_argument("--epochs", default=90, type=int, metavar="N", help="number of total epochs to run")
    parser.add_argument("--lr", default=0.1, type=float, help="initial learning rate")
    parser.add_argument("--print-freq", default=2, type=int, help="print frequency")
    parser.add_argument("--output-dir", default=".", type=str, help="path to save outputs")
    parser.add_argument("--resume", default="", type=str, help="path of checkpoint")
    parser.add_argument("--start-epoch", default=0, type=int, metavar="N", help="start epoch")
    parser.add_argument("--dist-url", default="env://", type=str, help="url used to set up distributed training")
    parser.add_argument("--pause", default=0.08, type=float, help="seconds that a batch takes longer")
    return parser


if __name__ == "__main__":
    main(get_args_parser().parse_args())
