"""The shape of nanoGPT's train.py: globals as options, out_dir, init_from=scratch|resume, ckpt.pt at every evaluation.

Kept as there: random batches, whose random state is not saved; nothing is saved at iteration 0; saved in place.
"""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir = "out"
eval_interval = 10
eval_iters = 2
log_interval = 1
always_save_checkpoint = True
init_from = "scratch"  # 'scratch' or 'resume'
batch_size = 8
block_size = 16
n_embd = 32
max_iters = 90
learning_rate = 1e-3
backend = "nccl"
pause = 0.1  # seconds that an iteration takes longer
with open("configurator.py") as configurator:
    exec(configurator.read())
config = {
    key: value for key, value in globals().items() if isinstance(value, int | float | bool | str) and key[0] != "_"
}

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_rank = int(os.environ["RANK"])
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
else:
    master_process = True
    seed_offset = 0
if master_process:
    os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337 + seed_offset)

data = np.random.default_rng(0).integers(0, 65, 20_000).cumsum() % 65


class Model(nn.Module):
    def __init__(self, vocab_size, n_embd):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.rnn = nn.GRU(n_embd, n_embd, batch_first=True)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        logits = self.lm_head(self.rnn(self.wte(idx))[0])
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


iter_num = 0
best_val_loss = 1e9
model_args = {"vocab_size": 65, "n_embd": n_embd}
if init_from == "scratch":
    print("Initializing a new model from scratch")
    model = Model(**model_args)
elif init_from == "resume":
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location="cpu")
    model_args = checkpoint["model_args"]
    model = Model(**model_args)
    model.load_state_dict(checkpoint["model"])
    iter_num = checkpoint["iter_num"]
    best_val_loss = checkpoint["best_val_loss"]
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
if init_from == "resume":
    optimizer.load_state_dict(checkpoint["optimizer"])
checkpoint = None
if ddp:
    model = DDP(model)
raw_model = model.module if ddp else model


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [raw_model(*get_batch())[1].item() for _ in range(eval_iters)]
    model.train()
    return sum(losses) / eval_iters


X, Y = get_batch()
t0 = time.time()
while True:
    if iter_num % eval_interval == 0 and master_process:
        val_loss = estimate_loss()
        print(f"step {iter_num}: val loss {val_loss:.4f}")
        if (val_loss < best_val_loss or always_save_checkpoint) and iter_num > 0:
            best_val_loss = val_loss
            checkpoint = {
                "model": raw_model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "model_args": model_args,
                "iter_num": iter_num,
                "best_val_loss": best_val_loss,
                "config": config,
            }
            print(f"saving checkpoint to {out_dir}")
            torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
    _, loss = model(X, Y)
    X, Y = get_batch()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    time.sleep(pause)
    t1 = time.time()
    if iter_num % log_interval == 0 and master_process:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {(t1 - t0) * 1000:.2f}ms, mfu -100.00%")
    t0 = t1
    iter_num += 1
    if iter_num > max_iters:
        break
if ddp:
    destroy_process_group()
