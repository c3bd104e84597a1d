"""The torchrun command line of one attempt. Every flag is given, so that no ``PET_*`` variable can change one."""

from pathlib import Path

import rekindle.rank


def torchrun_argv(*, world_size: int, rendezvous_id: str, log_dir: Path, warm: bool) -> list[str]:
    """Arguments for ``torch.distributed.run``: one node, a store of its own, and no restarts inside torchrun.

    Its restarts reuse one store, so that restarted ranks can read a dead attempt's addresses; the keeper makes a
    fresh attempt instead. ``warm`` forks the ranks from the agent, which must have imported torch and nothing that
    starts threads; otherwise each is a fresh interpreter.
    """
    common = [
        "--nnodes=1",
        f"--nproc-per-node={world_size}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        f"--rdzv-id={rendezvous_id}",
        "--max-restarts=0",
        "--monitor-interval=0.1",
        f"--log-dir={log_dir}",
        "--redirects=0",
        "--tee=0",
    ]
    if warm:
        wrapper = Path(rekindle.rank.__file__).with_name("__main__.py")
        return [*common, "--start-method=fork", "--run-path", str(wrapper)]
    return [*common, "-m", "rekindle.rank"]
