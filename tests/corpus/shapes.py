"""The shapes of scripts that people have: how each is submitted, what it prints, and what it does by itself."""

import shlex
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Shape:
    """A script, the words after ``rekindle submit``, and how to read its output.

    ``position``: pattern of a line of rank 0 about an epoch or a step: its number is the group ``at``.
    ``options`` are of rekindle, ``args`` the script's own; ``added`` is what a user adds to ``command`` so that the
    script resumes, as the table shows it. Each word may contain ``{outside}``, a directory that belongs to no job, and
    ``{port}``, a free port.
    """

    name: str
    directory: str
    command: str
    position: str
    unit: str = "epoch"  # of the numbers that it prints
    line: str = ""  # what a printed line stands for, if not for one of these
    options: str = "--ranks 2"
    ranks: int = 2
    added: str = ""
    saves: str = ""
    resumes: bool = True  # from something that it has saved
    exact: bool = True  # restarts change no printed loss
    before_fault: int = 3  # epochs or steps of an attempt before the next fault
    must_print: str = ""

    @property
    def code(self) -> Path:
        return SCRIPTS / self.directory

    def words(self, outside: Path, port: int) -> list[str]:
        words = shlex.split(f"{self.options} {self.command}")
        return [word.replace("{outside}", str(outside)).replace("{port}", str(port)) for word in words]


_NUMBERED = r"(?m)^epoch (?P<at>\d+) loss (?P<loss>[\d.]+)"
_HYDRA = r"- epoch (?P<at>\d+) loss (?P<loss>[\d.]+)"
_LIGHTNING = r"\[step=(?P<at>\d+), train_loss=(?P<loss>[\d.]+)\]"
_ACCELERATE = r"(?m)^epoch \d+: step (?P<at>\d+) loss (?P<loss>[\d.]+)"
_NANOGPT = r"(?m)^iter (?P<at>\d+): loss (?P<loss>[\d.]+)"
_IMAGENET = r"Epoch: \[(?P<at>\d+)\]\[\d+/\d+\]\s.*Loss (?P<loss>[\d.e+-]+)"
_TORCHVISION = r"Epoch: \[(?P<at>\d+)\]  \[\d+/\d+\].*  loss: (?P<loss>[\d.]+)"

_NANOGPT_COMMAND = "train.py --backend=gloo --max_iters=80"
_ACCELERATE_COMMAND = "cv_example.py --output_dir out --checkpointing_steps 5 --num_epochs 9"
_TORCHVISION_COMMAND = "train.py --epochs 15 --output-dir out"

SHAPES = [
    Shape(
        "DDP tutorial, `multigpu_torchrun.py`",
        "ddp_tutorial",
        "multigpu_torchrun.py 20 1",
        r"\[GPU0\] Epoch (?P<at>\d+) \| Batchsize.*Loss: (?P<loss>[\d.]+)",
        saves="`snapshot.pt`, working directory, every epoch",
        exact=False,  # trains the saved epoch again
    ),
    Shape(
        "minGPT-ddp",
        "mingpt",
        "main.py",
        r"\[GPU0\] Epoch (?P<at>\d+) \| Iter \d+ \| Train Loss (?P<loss>[\d.]+)",
        saves="`gpt_snapshot.pt`, named in its configuration, every 3 epochs",
        before_fault=4,
    ),
    Shape(
        "imagenet example",
        "imagenet",
        "main.py --dist-url env:// --dist-backend gloo --epochs 15",
        _IMAGENET,
        saves="`checkpoint.pth.tar`, `model_best.pth.tar`, working directory, every epoch",
        resumes=False,
    ),
    Shape(
        "imagenet example",
        "imagenet",
        "main.py --dist-url env:// --dist-backend gloo --epochs 15 --resume checkpoint.pth.tar",
        _IMAGENET,
        added="`--resume checkpoint.pth.tar` (a missing file is no error for it)",
        saves="the same",
    ),
    Shape(
        "nanoGPT",
        "nanogpt",
        f"{_NANOGPT_COMMAND} --out_dir={{outside}}/out",
        _NANOGPT,
        "step",
        saves="`ckpt.pt` in `out_dir`, an absolute path, every 10 steps",
        resumes=False,
        exact=False,
        before_fault=13,
    ),
    Shape(
        "nanoGPT",
        "nanogpt",
        f"{_NANOGPT_COMMAND} --out_dir={{snapshots}}",
        _NANOGPT,
        "step",
        options="--ranks 2 --on-restart '{exists:ckpt.pt} --init_from=resume'",
        added='`--out_dir={snapshots}`, and `--on-restart "{exists:ckpt.pt} --init_from=resume"`',
        saves="`ckpt.pt` in the snapshot directory, every 10 steps",
        exact=False,  # does not restore its random state
        before_fault=13,
    ),
    Shape(
        "torchvision's reference",
        "torchvision_reference",
        _TORCHVISION_COMMAND,
        _TORCHVISION,
        saves="`out/model_N.pth`, `out/checkpoint.pth`, every epoch",
        resumes=False,
    ),
    Shape(
        "torchvision's reference",
        "torchvision_reference",
        _TORCHVISION_COMMAND,
        _TORCHVISION,
        options="--ranks 2 --on-restart '--resume {latest:out/checkpoint.pth}'",
        added='`--on-restart "--resume {latest:out/checkpoint.pth}"`',
        saves="the same",
    ),
    Shape(
        "Lightning, defaults",
        "lightning_like",
        "train.py --max_epochs 12",
        _LIGHTNING,
        "step",
        saves="`lightning_logs/version_N/checkpoints/*.ckpt`, every 4 steps and at SIGTERM",
        resumes=False,
        before_fault=6,
    ),
    Shape(
        "Lightning",
        "lightning_like",
        "train.py --max_epochs 12 --ckpt_dir out",
        _LIGHTNING,
        "step",
        added='`ModelCheckpoint("out", save_last=True, …)` in the script',
        saves="`out/*.ckpt`, every 4 steps and at SIGTERM",
        before_fault=6,
    ),
    Shape(
        "Hugging Face Trainer",
        "hf_trainer_like",
        "run_classification.py --output_dir out --max_steps 60",
        r"\{'loss': (?P<loss>[\d.]+), .*'epoch': (?P<at>[\d.]+)\}",
        line="step",
        saves="`out/checkpoint-N/`, every 5 steps, the last two",
        before_fault=7,
    ),
    Shape(
        "Accelerate",
        "accelerate_like",
        _ACCELERATE_COMMAND,
        _ACCELERATE,
        "step",
        saves="`out/step_N/`, every 5 steps",
        resumes=False,
        before_fault=7,
    ),
    Shape(
        "Accelerate",
        "accelerate_like",
        _ACCELERATE_COMMAND,
        _ACCELERATE,
        "step",
        options="--ranks 2 --on-restart '--resume_from_checkpoint {latest:out/step_*}'",
        added='`--on-restart "--resume_from_checkpoint {latest:out/step_*}"`',
        saves="the same",
        before_fault=7,
    ),
    Shape(
        "Hydra",
        "hydra_like",
        "train.py epochs=20",
        _HYDRA,
        saves="`outputs/DATE/TIME/checkpoint.pt`, every epoch",
        resumes=False,
    ),
    Shape(
        "Hydra",
        "hydra_like",
        "train.py epochs=20 hydra.run.dir=outputs/run",
        _HYDRA,
        added="`hydra.run.dir=outputs/run`",
        saves="`outputs/run/checkpoint.pt`, every epoch",
    ),
    Shape(
        "DDP tutorial, `mp.spawn`",
        "mp_spawn",
        "multigpu.py 20 1 --gpus 2 --port {port}",
        r"\[GPU0\] Epoch (?P<at>\d+) \| Batchsize: \d+ \| Loss: (?P<loss>[\d.]+)",
        options="--ranks 1",
        ranks=1,
        saves="`checkpoint.pt`, working directory, every epoch; never loads",
        resumes=False,
    ),
    Shape(
        "`DataParallel`",
        "data_parallel",
        "train.py",
        r"Epoch (?P<at>\d+)/20 - loss: (?P<loss>[\d.]+)",
        options="--ranks 1",
        ranks=1,
        saves="`model.pt`, working directory, every epoch",
    ),
    Shape("plain DDP loop", "plain", "train.py", _NUMBERED, saves="nothing", resumes=False),
    Shape(
        "plain DDP loop that saves",
        "plain",
        "train.py --save weights.pt",
        _NUMBERED,
        saves="`weights.pt`, every epoch; never loads",
        resumes=False,
    ),
    Shape(
        "saves and exits 0 at SIGTERM",
        "sigterm_exit",
        "train.py --epochs 40 --pause 0.15",
        _NUMBERED,
        saves="`last.pth`, every 5 epochs and at SIGTERM",
        before_fault=7,
    ),
    Shape(
        "FSDP2 with DCP",
        "dcp_sharded",
        "train.py",
        r"(?m)^step (?P<at>\d+)/60 loss (?P<loss>[\d.]+)",
        "step",
        saves="`checkpoints/step-N/`, a file per rank, every 5 steps",
        before_fault=7,
    ),
    Shape(
        "package, relative imports, `-m`",
        "package",
        "-m speller.train",
        r"epoch=(?P<at>\d+) train_loss=(?P<loss>[\d.]+)",
        saves="`runs/default/epoch_N.pth`, every epoch",
    ),
    Shape(
        "`--local_rank` of the old launcher",
        "local_rank",
        "train.py",
        _NUMBERED,
        saves="`latest.pt`, working directory, every epoch",
        must_print="world size 2",
    ),
]
