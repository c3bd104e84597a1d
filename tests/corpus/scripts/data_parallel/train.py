"""The shape of the DataParallel tutorial with a --checkpoint: one process, which uses all GPUs that it sees."""

import argparse
import os
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--checkpoint", default="model.pt")
parser.add_argument("--pause", type=float, default=0.3, help="seconds that an epoch takes longer")
args = parser.parse_args()

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = nn.Linear(5, 2)
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    model = nn.DataParallel(model)
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
start_epoch = 0
if os.path.exists(args.checkpoint):
    checkpoint = torch.load(args.checkpoint, map_location=device)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    start_epoch = checkpoint["epoch"]
inputs = torch.randn(100, 5, device=device)
for epoch in range(start_epoch, args.epochs):
    for batch in inputs.split(30):
        loss = model(batch).sub(batch[:, :2]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    time.sleep(args.pause)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
    torch.save(state, args.checkpoint)
    print(f"Epoch {epoch + 1}/{args.epochs} - loss: {loss.item():.6f}", flush=True)
