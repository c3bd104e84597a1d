"""The shape of Accelerate's complete example: save_state every N steps, --resume_from_checkpoint DIRECTORY."""

import argparse
import os
import time

import torch
from accelerator import Accelerator, skip_first_batches
from torch.utils.data import TensorDataset


def training_function(args):
    accelerator = Accelerator()
    torch.manual_seed(0)
    inputs = torch.randn(320, 10)
    dataset = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    net = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(20, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    model, optimizer, train_dataloader = accelerator.prepare(net, optimizer, dataset, batch_size=16)
    overall_step, starting_epoch, resume_step = 0, 0, None
    if args.resume_from_checkpoint is not None and args.resume_from_checkpoint != "":
        accelerator.print(f"Resumed from checkpoint: {args.resume_from_checkpoint}")
        accelerator.load_state(args.resume_from_checkpoint)
        path = os.path.basename(args.resume_from_checkpoint)
        overall_step = int(os.path.splitext(path)[0].replace("step_", ""))
        starting_epoch = overall_step // len(train_dataloader)
        resume_step = overall_step - starting_epoch * len(train_dataloader)
    for epoch in range(starting_epoch, args.num_epochs):
        train_dataloader.sampler.set_epoch(epoch)
        active_dataloader = train_dataloader
        if epoch == starting_epoch and resume_step is not None:
            active_dataloader = skip_first_batches(train_dataloader, resume_step)
        for x, y in active_dataloader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(args.pause)
            overall_step += 1
            accelerator.print(f"epoch {epoch}: step {overall_step} loss {loss.item():.5f}")
            if overall_step % args.checkpointing_steps == 0:
                accelerator.save_state(os.path.join(args.output_dir, f"step_{overall_step}"))
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--checkpointing_steps", type=int, default=5)
    parser.add_argument("--output_dir", type=str, default=".")
    parser.add_argument("--resume_from_checkpoint", type=str, default=None)
    parser.add_argument("--num_epochs", type=int, default=9)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds that a step takes longer")
    training_function(parser.parse_args())
