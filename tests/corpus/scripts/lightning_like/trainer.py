"""A trainer like Lightning's: it owns the loop, the checkpoints and the handler of SIGTERM.

After SIGTERM it finishes the batch, saves, and ends with exit code 0. Checkpoints are in lightning_logs/version_N of
this start unless dirpath is given; ckpt_path="last" looks where it would save itself.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class ModelCheckpoint:
    def __init__(self, dirpath=None, every_n_train_steps=None, save_last=True):
        self.dirpath = dirpath
        self.every_n_train_steps = every_n_train_steps
        self.save_last = save_last


class SignalConnector:
    """Notes SIGTERM, for the loop to see at the end of its batch."""

    def __init__(self):
        self.received_sigterm = False
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, signum, frame):
        print(f"[rank: {os.environ.get('RANK', 0)}] Received SIGTERM: {signum}", file=sys.stderr)
        self.received_sigterm = True


class Trainer:
    def __init__(self, max_epochs, checkpoint, pause=0.0):
        self.max_epochs = max_epochs
        self.checkpoint = checkpoint
        self.pause = pause
        self.current_epoch = self.global_step = 0
        self.fit_loop = {"batch_progress": 0}
        self.signals = SignalConnector()
        self.received_flag = torch.zeros(1)

    @property
    def dirpath(self):
        return self.checkpoint.dirpath or os.path.join("lightning_logs", f"version_{self._version}", "checkpoints")

    def fit(self, module, dataset, ckpt_path=None):
        dist.init_process_group("gloo")
        self._version = self._next_version()
        self.module, self.optimizer = module, module.configure_optimizers()
        if ckpt_path == "last":
            self._restore(os.path.join(self.dirpath, "last.ckpt"))
        self.model = DistributedDataParallel(module)
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, batch_size=module.batch_size, sampler=sampler)
        for self.current_epoch in range(self.current_epoch, self.max_epochs):
            sampler.set_epoch(self.current_epoch)
            self._run_epoch(loader)
        if dist.get_rank() == 0:
            print(f"`Trainer.fit` stopped: `max_epochs={self.max_epochs}` reached.")
        dist.destroy_process_group()

    def _run_epoch(self, loader):
        done = self.fit_loop["batch_progress"]
        for index, batch in enumerate(loader):
            if index < done:
                continue
            loss = self.module.training_step(self.model, batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(self.pause)
            self.global_step += 1
            self.fit_loop["batch_progress"] = index + 1
            if dist.get_rank() == 0:
                progress = (
                    f"Epoch {self.current_epoch}: {100 * (index + 1) // len(loader):3d}%|{index + 1}/{len(loader)}"
                )
                print(f"{progress} [step={self.global_step}, train_loss={loss.item():.5f}]", flush=True)
            self._stop_on_sigterm()
            if self.global_step % self.checkpoint.every_n_train_steps == 0:
                self._save(f"epoch={self.current_epoch}-step={self.global_step}.ckpt")
        self.fit_loop["batch_progress"] = 0

    def _stop_on_sigterm(self):
        """All ranks stop at the same step where one of them has received the signal."""
        self.received_flag.fill_(float(self.signals.received_sigterm))
        dist.all_reduce(self.received_flag, op=dist.ReduceOp.MAX)
        if self.received_flag.item():
            self._save("on-signal.ckpt")
            dist.barrier()
            raise SystemExit(0)

    def _save(self, name):
        if dist.get_rank() != 0:
            return
        os.makedirs(self.dirpath, exist_ok=True)
        state = {
            "epoch": self.current_epoch,
            "global_step": self.global_step,
            "pytorch-lightning_version": "2.6",
            "state_dict": self.module.state_dict(),
            "loops": dict(self.fit_loop),
            "optimizer_states": [self.optimizer.state_dict()],
        }
        torch.save(state, os.path.join(self.dirpath, name))
        if self.checkpoint.save_last:
            torch.save(state, os.path.join(self.dirpath, "last.ckpt"))

    def _restore(self, path):
        if not os.path.isfile(path):
            print(f".fit(ckpt_path='last') is set, but there is no last checkpoint available at {path}.")
            return
        print(f"Restoring states from the checkpoint path at {path}")
        saved = torch.load(path, map_location="cpu")
        self.module.load_state_dict(saved["state_dict"])
        self.optimizer.load_state_dict(saved["optimizer_states"][0])
        self.fit_loop = saved["loops"]
        self.current_epoch, self.global_step = saved["epoch"], saved["global_step"]

    def _next_version(self):
        """The same on all ranks: rank 0 chooses and makes the directory of this start."""
        chosen = [0]
        if dist.get_rank() == 0:
            os.makedirs("lightning_logs", exist_ok=True)
            chosen = [len(os.listdir("lightning_logs"))]
            os.makedirs(os.path.join("lightning_logs", f"version_{chosen[0]}"))
        dist.broadcast_object_list(chosen)
        return chosen[0]
