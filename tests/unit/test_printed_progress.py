"""Step and epoch are estimated from what common trainers print, and from nothing that only looks like it."""

import re
from pathlib import Path

import pytest

from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.keeper.observers.printed_lines import LineReader
from rekindle.keeper.observers.printed_output import MAX_BYTES, PrintedOutput
from rekindle.keeper.observers.printed_series import LogPlace, PrintedSeries

PROGRESS = [
    ("iter 10: loss 9, time 30ms", "iter 20: loss 8, time 30ms", 20, None),  # nanoGPT
    ("iter_dt 35.44ms; iter 100: train loss 1.2", "iter_dt 35.44ms; iter 200: train loss 1.2", 200, None),  # minGPT
    ("Epoch: [1][  1/500]\tTime  6.0 (6.0)", "Epoch: [1][ 11/500]\tTime  0.4 (3.0)", 511, 1),  # imagenet
    ("Epoch: [0]  [  0/625]  eta: 0:10", "Epoch: [0]  [ 10/625]  eta: 0:09", 10, 0),  # torchvision
    ("Epoch [3/90], Loss: 2.1", "Epoch [4/90], Loss: 2.0", None, 4),
    ("[GPU0] Epoch 3 | Batchsize: 32 | Steps: 8", "[GPU0] Epoch 4 | Batchsize: 32 | Steps: 8", None, 4),
    ("Train Epoch: 1 [640/60000 (1%)]", "Train Epoch: 2 [0/60000 (0%)]", None, 2),
    ("Epoch 3:  45%|████▌ | 450/1000 [00:10<00:12]", "Epoch 3:  46%|████▌ | 460/1000 [00:10<00:12]", 3460, 3),
    (" 45%|████▌  | 450/1000 [00:10<00:12, 44.10it/s]", " 46%|████▌  | 460/1000 [00:10<00:12, 44.1it/s]", 460, None),
    ("Epochs:  3%|█| 3/90 [00:10<00:12,  1.10it/s]", "Epochs:  4%|█| 4/90 [00:10<00:12,  1.10it/s]", None, 4),
    ("{'loss': 2.1, 'lr': 5e-05, 'epoch': 1.5}", "{'loss': 2.1, 'lr': 5e-05, 'epoch': 2.5}", None, 2),  # Trainer
    ("global_step=100 loss=1", "global_step=101 loss=1", 101, None),
    ("step 100/1000 | loss 1", "\x1b[32mstep 200/1000\x1b[0m | loss 1", 200, None),
]  # fmt: skip

NO_PROGRESS = [
    ("Epoch 3/90", "Epoch 3/90"),
    ("Epoch 4/90", "Epoch 3/90"),
    ("100%|██████████| 9.91M/9.91M [00:00<00:00, 20MB/s]", "100%|██████████| 19.91M/19.91M [00:00<00:00, 20MB/s]"),
    ("Loading shards:  50%|█████| 1/2 [00:01<00:01]", "Loading shards: 100%|█████| 2/2 [00:01<00:01]"),
    ("Map:   1%|█ | 100/1000 [00:01<00:01]", "Map:  20%|█ | 200/1000 [00:01<00:01]"),
    ("Validation:  10%|█ | 10/100 [00:01<00:01]", "Validation:  20%|█ | 20/100 [00:01<00:01]"),
    ("Evaluating step 10", "Evaluating step 20"),
    ("Namespace(epochs=90, step=10)", "Namespace(epochs=91, step=11)"),
    ("best epoch 3", "best epoch 4"),
    ("step_size: 30", "step_size: 40"),
    ("steps: 10", "steps: 20"),
    ("stepped 1 footstep 2b", "stepped 2 footstep 3b"),
    ("epoch 1.5.2-beta", "epoch 1.6.2-beta"),
    ("x" * 2000 + " step 1", "x" * 2000 + " step 2"),
    ("step 99999999999999999999", "step 999999999999999999999"),
]  # fmt: skip


class PrintedProgress(PrintedSeries):
    def feed(self, text: str) -> None:
        for line in re.split(r"[\r\n]", text):
            if (read := LineReader().read(line)) is not None:
                self.add(read, LogPlace(0, "stdout", 0))


@pytest.mark.parametrize(("first", "second", "step", "epoch"), PROGRESS)
def test_lines_of_common_trainers_are_understood_when_they_come_twice(first, second, step, epoch) -> None:
    progress = PrintedProgress()
    progress.feed(f"{first}\r")
    assert (progress.step, progress.epoch) == (None, None)
    progress.feed(f"{second}\r")
    assert (progress.step, progress.epoch) == (step, epoch)


@pytest.mark.parametrize(("first", "second"), NO_PROGRESS)
def test_lines_that_look_like_progress_are_ignored(first: str, second: str) -> None:
    progress = PrintedProgress()
    progress.feed(f"{first}\n{second}\n{first}\n" if first == second else f"{first}\n{second}\n")
    assert (progress.step, progress.epoch) == (None, None)


ENDS = [
    ("step {0}/180: loss 1", range(180), 180, None),
    ("step {0}/180: loss 1", range(100, 180), 180, None),
    ("step {0} of 180", range(1, 181), 180, None),
    ("iter {0}: loss 1", range(180), 180, None),
    ("iter {0}: loss 1", range(1, 181), 180, None),
    ("iter {0}: loss 1", range(0, 180, 10), 170, None),
    ("Epoch [{0}/3], Loss: 2.1", range(3), None, 3),
    ("Epoch [{0}/3], Loss: 2.1", range(1, 4), None, 3),
    ("Epoch {0} loss 2.1", range(3), None, 3),
    ("{1:3.0f}%|█| {0}/180 [00:10<00:12, 44.10it/s]", range(181), 180, None),
    ("Epoch 0: {1:3.0f}%|█| {0}/180 [00:10<00:12, 44.10it/s]", range(181), 180, 1),
    ("Epoch: [0]  [{0:3}/180]  eta: 0:10", range(180), 180, 1),
]


@pytest.mark.parametrize(("line", "numbers", "step", "epoch"), ENDS)
def test_the_last_step_and_epoch_count_once_the_script_is_done(
    tmp_path: Path, line: str, numbers: range, step: int | None, epoch: int | None
) -> None:
    log = AttemptDir(tmp_path).rank(0).log("stdout")
    log.parent.mkdir(parents=True)
    log.write_text("\r".join(line.format(number, 100 * number / 180) for number in numbers))
    progress = PrintedOutput(AttemptDir(tmp_path), [0])
    progress.read(ended=True)
    progress.complete()
    assert (progress.step, progress.epoch) == (step, epoch)


def test_logs_are_read_once_and_only_in_whole_lines(tmp_path: Path) -> None:
    log = AttemptDir(tmp_path).rank(0).log("stdout")
    log.parent.mkdir(parents=True)
    progress = PrintedOutput(AttemptDir(tmp_path), [0, 1])
    progress.read()
    with log.open("w") as file:
        flood = "." * 3 * MAX_BYTES
        for text, step in (("iter 1: a\niter 2: b\nite", 2), ("r 30: c\n", 30), (f"{flood}\niter 31: d\n", 31)):
            file.write(text)
            file.flush()
            progress.read()
            assert progress.step == step
