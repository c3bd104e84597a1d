"""Hugging Face Trainer: a callback, and the path of the job's latest checkpoint."""

import argparse
import time
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

import digits
from rekindle.integrations.transformers import RekindleCallback, latest_checkpoint


class DigitConfig(PretrainedConfig):
    model_type = "digits"


class Classifier(PreTrainedModel):
    config_class = DigitConfig

    def __init__(self, config: DigitConfig) -> None:
        super().__init__(config)
        self.model = digits.build()
        self.samples: list[int] = []
        self.post_init()

    def forward(self, samples: Tensor, pixels: Tensor, labels: Tensor) -> dict[str, Tensor]:
        self.samples = samples.tolist()
        logits = self.model(pixels)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


class Trace(TrainerCallback):
    def __init__(self, pause: float) -> None:
        self.pause = pause

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        digits.trace(args.process_index, state.global_step, int(state.epoch), model.samples)
        time.sleep(self.pause)


def collate(items: list[tuple[int, Tensor, Tensor]]) -> dict[str, Tensor]:
    samples, pixels, labels = zip(*items, strict=True)
    return {"samples": torch.tensor(samples), "pixels": torch.stack(pixels), "labels": torch.stack(labels)}


def main(epochs: int, pause: float) -> None:
    arguments = TrainingArguments(
        "out",
        num_train_epochs=epochs,
        per_device_train_batch_size=digits.BATCH,
        learning_rate=1e-3,
        save_steps=20,
        save_total_limit=2,
        logging_steps=5,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        seed=0,
    )
    classifier = Classifier(DigitConfig())
    callbacks = [Trace(pause), RekindleCallback()]
    trainer = Trainer(classifier, arguments, collate, digits.Digits(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=latest_checkpoint())
    if trainer.is_world_process_zero():
        print("weights", digits.digest(classifier))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds that a step takes longer")
    chosen = parser.parse_args()
    main(chosen.epochs, chosen.pause)
