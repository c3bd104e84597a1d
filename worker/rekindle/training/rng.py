"""The random number generators of a rank, as plain lists and tensors that load with ``weights_only=True``."""

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def capture(device: torch.device) -> dict[str, Any]:
    """Capture Python's generator, numpy's (where the script uses it), torch's, and those of all visible GPUs."""
    return {
        "python": list(random.getstate()),
        "numpy": _capture_numpy(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "all_cuda": torch.cuda.get_rng_state_all() if device.type == "cuda" else [],
    }


def restore(state: dict[str, Any], device: torch.device) -> None:
    """Set what ``capture`` returned. A GPU's generator is not changed where the state is from a CPU."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    if state["numpy"] is not None:
        import numpy as np

        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and device.type == "cuda":
        if len(every := state.get("all_cuda", ())) == torch.cuda.device_count():  # a rank may use several
            torch.cuda.set_rng_state_all(every)
        torch.cuda.set_rng_state(state["cuda"], device)


def derived_seed(*parts: int) -> int:
    """Make a 64-bit seed from ``parts``, such as (seed, epoch, index): unrelated even where the parts differ by one."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def seed_all(seed: int) -> None:
    """Seed every generator of this process with a 64-bit ``seed``."""
    seed_cpu(seed)
    torch.manual_seed(seed)


def seed_cpu(seed: int) -> None:
    """Seed the CPU's generators alone: for the code of a data set."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if (np := sys.modules.get("numpy")) is not None:
        np.random.seed(seed % 2**32)


@contextmanager
def preserved() -> Iterator[None]:
    """Restore the CPU's generators afterwards: what is drawn within leaves no trace."""
    cpu = torch.device("cpu")
    state = capture(cpu)
    try:
        yield
    finally:
        restore(state, cpu)


def _capture_numpy() -> list[Any] | None:
    if (np := sys.modules.get("numpy")) is None:
        return None
    kind, keys, *rest = np.random.get_state(legacy=True)
    return [kind, np.asarray(keys).tolist(), *rest]
