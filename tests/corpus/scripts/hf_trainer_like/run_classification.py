"""The shape of an example of Hugging Face's Trainer: it looks for the last checkpoint in --output_dir by itself.

Kept as in the examples: a directory that is not empty and has no checkpoint is an error.
"""

import argparse
import os

import torch
from torch.utils.data import TensorDataset
from trainer import Trainer, TrainingArguments, get_last_checkpoint


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--overwrite_output_dir", action="store_true")
    parser.add_argument("--resume_from_checkpoint")
    parser.add_argument("--max_steps", type=int, default=90)
    parser.add_argument("--save_steps", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds that a step takes longer")
    args = parser.parse_args()
    last_checkpoint = None
    if os.path.isdir(args.output_dir) and not args.overwrite_output_dir:
        last_checkpoint = get_last_checkpoint(args.output_dir)
        if last_checkpoint is None and len(os.listdir(args.output_dir)) > 0:
            raise ValueError(
                f"Output directory ({args.output_dir}) already exists and is not empty. "
                "Use --overwrite_output_dir to overcome."
            )
        if last_checkpoint is not None and args.resume_from_checkpoint is None:
            print(f"Checkpoint detected, resuming training at {last_checkpoint}.")
    torch.manual_seed(42)
    inputs = torch.randn(320, 12)
    dataset = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(24, 2))
    options = TrainingArguments(args.output_dir, max_steps=args.max_steps, save_steps=args.save_steps, pause=args.pause)
    Trainer(model, options, dataset).train(resume_from_checkpoint=args.resume_from_checkpoint or last_checkpoint)


if __name__ == "__main__":
    main()
