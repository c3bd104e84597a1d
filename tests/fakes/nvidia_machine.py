"""A stand-in for the driver of a machine with four GPUs, of which NVLink joins 0 with 1 and 2 with 3. Needs gcc.

Only what the server asks is there: torch finds no GPU by it.
"""

import subprocess
from pathlib import Path

from fakes.nvidia_driver import NAME

_SOURCE = """
#include <stdio.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
static long number(void *handle) { return (long)handle - 1; }
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(index + 1L); return index >= 4; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    unsigned index = 9;
    sscanf(uuid, "GPU-000%u", &index);
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
int nvmlDeviceGetName(void *handle, char *name, unsigned length) { snprintf(name, length, "Stand-in"); return 0; }
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) {
    snprintf(uuid, length, "GPU-000%ld", number(handle));
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory *info) {
    memset(info, 0, sizeof *info);
    info->total = info->free = 1ULL << 34;
    return 0;
}
int nvmlDeviceGetP2PStatus(void *one, void *other, int caps, int *status) {
    *status = number(one) / 2 == number(other) / 2 ? 0 : 5;
    return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level) { *level = 50; return 0; }
int nvmlDeviceGetUtilizationRates(void *handle, void *rates) { return 3; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees) { return 3; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { return 3; }
"""


def build(folder: Path) -> Path:
    """The folder of the library, for LD_LIBRARY_PATH."""
    source = folder / "machine.c"
    source.write_text(_SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / NAME, source], check=True)
    return folder
