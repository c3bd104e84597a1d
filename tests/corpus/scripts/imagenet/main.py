"""The shape of PyTorch's imagenet example: --resume names a checkpoint, checkpoint.pth.tar and model_best.pth.tar.

Kept as there: both files are written in the working directory, in place; a missing file after --resume is no error.
"""

import argparse
import os
import shutil
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description="PyTorch ImageNet Training")
parser.add_argument("data", metavar="DIR", nargs="?", default="imagenet", help="path to dataset (default: imagenet)")
parser.add_argument("-a", "--arch", metavar="ARCH", default="mlp")
parser.add_argument("--epochs", default=90, type=int, metavar="N", help="number of total epochs to run")
parser.add_argument("--start-epoch", default=0, type=int, metavar="N", help="manual epoch number")
parser.add_argument("-b", "--batch-size", default=256, type=int, metavar="N")
parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, metavar="LR", dest="lr")
parser.add_argument("-p", "--print-freq", default=2, type=int, metavar="N", help="print frequency")
parser.add_argument("--resume", default="", type=str, metavar="PATH", help="path to latest checkpoint (default: none)")
parser.add_argument("--world-size", default=-1, type=int, help="number of nodes for distributed training")
parser.add_argument("--rank", default=-1, type=int, help="node rank for distributed training")
parser.add_argument("--dist-url", default="tcp://224.66.41.62:23456", type=str)
parser.add_argument("--dist-backend", default="nccl", type=str)
parser.add_argument("--pause", default=0.1, type=float, help="seconds that a batch takes longer")

best_acc1 = 0.0


def main():
    global best_acc1
    args = parser.parse_args()
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    if args.dist_url == "env://" and args.rank == -1:
        args.rank = int(os.environ["RANK"])
    dist.init_process_group(args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    print(f"=> creating model '{args.arch}'")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    if args.resume:
        if os.path.isfile(args.resume):
            print(f"=> loading checkpoint '{args.resume}'")
            checkpoint = torch.load(args.resume)
            args.start_epoch = checkpoint["epoch"]
            best_acc1 = checkpoint["best_acc1"]
            model.load_state_dict(checkpoint["state_dict"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scheduler.load_state_dict(checkpoint["scheduler"])
            print(f"=> loaded checkpoint '{args.resume}' (epoch {checkpoint['epoch']})")
        else:
            print(f"=> no checkpoint found at '{args.resume}'")
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train_set, val_set = TensorDataset(images[:1024], labels[:1024]), TensorDataset(images[1024:], labels[1024:])
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=args.batch_size // args.world_size, sampler=sampler)
    for epoch in range(args.start_epoch, args.epochs):
        sampler.set_epoch(epoch)
        train(loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_set, model)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if args.rank == 0:
            state = {
                "epoch": epoch + 1,
                "arch": args.arch,
                "state_dict": model.state_dict(),
                "best_acc1": best_acc1,
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
            }
            save_checkpoint(state, is_best)
    dist.destroy_process_group()


def train(loader, model, criterion, optimizer, epoch, args):
    model.train()
    started = time.time()
    for i, (images, target) in enumerate(loader):
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.pause)
        if i % args.print_freq == 0:
            batch_time = (time.time() - started) / (i + 1)
            print(f"Epoch: [{epoch}][{i}/{len(loader)}]\tTime {batch_time:6.3f}\tLoss {loss.item():.4e}", flush=True)


def validate(val_set, model):
    model.eval()
    images, target = val_set.tensors
    with torch.no_grad():
        acc1 = (model(images).argmax(1) == target).float().mean().item() * 100
    print(f" *   Acc@1 {acc1:.3f}", flush=True)
    return acc1


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


if __name__ == "__main__":
    main()
