"""The training of ``plain_ddp.py`` under torchft: each of the two replica groups is one rank, restarted by torchrun."""

import datetime
import os

import torch
from plain_ddp import Trainer, parsed
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo


class TorchftTrainer(Trainer):
    def wrap(self) -> None:
        limit = datetime.timedelta(seconds=min(self.options.timeout, 60))  # torchft's default is 60
        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=limit),
            min_replica_size=1,
            load_state_dict=self.restore,
            state_dict=self.state,
            replica_id=f"group-{self.rank}",
            timeout=limit,
            quorum_timeout=limit,
        )
        self.model = DistributedDataParallel(self.manager, self.module)
        self.optimizer = Optimizer(self.manager, torch.optim.SGD(self.module.parameters(), lr=0.01, momentum=0.9))

    def load(self) -> None:
        """Resume as the manager asks for; where the other group is further, its state is received after this."""
        super().load()
        if self.first:
            self.manager.load_state_dict({"step": self.first, "batches_committed": 2 * self.first})

    def train(self) -> None:
        while (step := self.manager.current_step()) < self.options.steps:
            self.train_step(step)
            if self.manager.current_step() > step:  # else the step is discarded
                step = self.manager.current_step() - 1
                if (step + 1) % self.options.every == 0:
                    self.save(step)
                self.finish_step(step)
        self.manager.shutdown()


if __name__ == "__main__":
    TorchftTrainer(parsed(), int(os.environ["REPLICA_GROUP_ID"])).train()
