"""One error of CUDA, by its name."""

import sys

import torch

device = torch.device("cuda", 0)
torch.ones(1, device=device).item()
match sys.argv[1]:
    case "assert":
        torch.zeros(4, device=device)[torch.tensor([1 << 20], device=device)]
        torch.cuda.synchronize()
    case "memory":
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    case "address":
        import cupy

        cupy.RawKernel('extern "C" __global__ void poke(int *at) { *at = 1; }', "poke")((1,), (1,), (cupy.uint64(16),))
        torch.cuda.synchronize()
    case "card":
        import torch.distributed as dist

        dist.init_process_group("nccl", device_id=device)
        dist.all_reduce(torch.ones(1, device=device))
