"""Commands of other launchers become the same job, or a message with the right command."""

import shlex
from pathlib import Path

import pytest

from rekindle_service.cli.launch_command import NotTranslatedError, translate

RUN = """#!/bin/bash
export OMP_NUM_THREADS=4
N=4
cd /project
torchrun --standalone --nproc_per_node=$N \\
    train.py --lr 0.1 "$@" > log.txt 2>&1 &
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    scripts = {"run.sh": RUN, "two.sh": "python a.py\npython b.py\n", "none.sh": "echo 1\n", "train.py": ""}
    scripts["data.sh"] = "srun torchrun --nproc_per_node 2 train.py --data $DATA\n"
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("torchrun --nproc_per_node=2 train.py --lr 0.1", "--ranks 2 train.py --lr 0.1"),
        ("torchrun --standalone --nproc-per-node 4 -m p.t a -b", "--ranks 4 --module p.t -- a -b"),
        ("torchrun --nproc 2 --nnodes=1 train.py", "--ranks 2 train.py"),
        ("torchrun --nproc 2 train.py --ranks 3", "--ranks 2 train.py -- --ranks 3"),
        ("torchrun train.py", "train.py"),
        ("/v/bin/torchrun --nproc-per-node 2 train.py", "--ranks 2 --python /v/bin/python train.py"),
        ("python train.py --lr 1", "train.py --lr 1"),
        ("/v/bin/python3.12 -u -m p.t", "--python /v/bin/python3.12 --module p.t"),
        ("python -m torch.distributed.run --nproc_per_node=2 train.py", "--ranks 2 train.py"),
        ("python -m torch.distributed.launch --use_env --nproc_per_node 2 t.py", "--ranks 2 t.py"),
        ("A=1 B='x y' torchrun --nproc_per_node 2 t.py", "--ranks 2 --env A=1 --env 'B=x y' t.py"),
        ("A=1 train.py x", "--env A=1 train.py x"),
    ],
)
def test_a_launchers_command_becomes_the_same_job(words: str, meant: str, project: Path) -> None:
    assert str(translate(shlex.split(words), project)) == f"rekindle submit {meant}"


def test_a_command_without_a_path_leaves_the_interpreter_open(project: Path) -> None:
    command = translate(["torchrun", "--standalone", "--rdzv_id=1", "train.py"], project)
    assert command is not None
    assert (command.python, command.dropped) == (None, ["--standalone", "--rdzv-id"])


@pytest.mark.parametrize("words", ["train.py --lr 0.1", "src/train.py torchrun", "../x/train.py", ""])
def test_a_script_of_python_needs_no_translation(words: str, project: Path) -> None:
    assert translate(words.split(), project) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("torchrun --nnodes 2 --nproc_per_node 2 t.py", "on all of them: rekindle submit --nodes 2 --ranks 4 t.py"),
        ("torchrun --nproc_per_node gpu t.py --a", "number of ranks: rekindle submit --ranks N t.py --a"),
        ("torchrun --nproc_per_node 2", "rekindle submit --ranks N train.py"),
        ("torchrun --frobnicate 1 t.py", "--frobnicate is no option of torchrun"),
        ("torchrun --no-python --nproc_per_node 2 x", "--no-python"),
        ("python -c print(1)", "python's option -c"),
        ("python", "write `rekindle submit train.py`"),
        ("bash run.sh", "write `rekindle submit --ranks 4 --env OMP_NUM_THREADS=4 train.py --lr 0.1`"),
        ("./run.sh --lr 3", "write `rekindle submit --ranks 4 --env OMP_NUM_THREADS=4 train.py --lr 0.1`"),
        ("data.sh", "write `rekindle submit --ranks 2 train.py --data '$DATA'` (fill in the variables"),
        ("two.sh", "for each of its commands, write"),
        ("none.sh", "for the script that it starts, write"),
        ("missing.sh", "write `rekindle submit --ranks N train.py`"),
        ("accelerate launch --num_processes 2 train.py -a", "write `rekindle submit --ranks 2 train.py -a`"),
        ("uv run torchrun --nproc_per_node 2 t.py", "write `rekindle submit --ranks 2 t.py`"),
        ("mpirun -np 4 python t.py --b", "write `rekindle submit --ranks 4 t.py --b`"),
        ("env A=1 python t.py", "write `rekindle submit --env A=1 t.py`"),
        ("srun", "write `rekindle submit --ranks N train.py`"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_the_right_command(words: str, message: str, project: Path) -> None:
    with pytest.raises(NotTranslatedError) as caught:
        translate(words.split(), project)
    assert message in str(caught.value)
