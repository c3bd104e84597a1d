"""One line that tells whether two trainings ended with the same weights."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def weights_sha256(parameters: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over all names and bytes; equal only where every bit is.

    Divided parameters (DTensors) are gathered: then all ranks must call it.
    """
    sha256 = hashlib.sha256()
    for name, parameter in parameters:
        whole = parameter.detach()
        if isinstance(whole, DTensor):
            whole = whole.full_tensor()
        data = whole.cpu().contiguous().flatten().view(torch.uint8)
        sha256.update(name.encode() + data.numpy().tobytes())
    return sha256.hexdigest()
