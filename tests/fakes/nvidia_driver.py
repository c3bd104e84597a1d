"""A stand-in for the NVIDIA driver's library: one GPU, whose memory in use is whatever a file says. Needs gcc."""

import shutil
import subprocess
from pathlib import Path

NAME = "libnvidia-ml.so.1"
HAS_COMPILER = shutil.which("gcc") is not None
UTILIZATION, TEMPERATURE, MILLIWATTS, TOTAL = 37, 54, 250_500, 80 << 30

_SOURCE = f"""
#include <stdio.h>
#include <string.h>
typedef struct {{ unsigned long long total, free, used; }} memory;
typedef struct {{ unsigned gpu, memory; }} rates;
int nvmlInit_v2(void) {{ return 0; }}
int nvmlInitWithFlags(unsigned flags) {{ return 0; }}
int nvmlShutdown(void) {{ return 0; }}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {{ *handle = (void *)1; return index != 0; }}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {{
    *handle = (void *)1;
    return strcmp(uuid, "GPU-a") != 0;
}}
int nvmlDeviceGetMemoryInfo(void *handle, memory *info) {{
    FILE *file = fopen(USED, "r");
    int found = file && fscanf(file, "%llu", &info->used) == 1;
    if (file) fclose(file);
    info->total = {TOTAL}ULL;
    info->free = info->total - info->used;
    return !found;
}}
typedef struct {{ char legacy[16]; unsigned ids[5]; char bus[32]; }} pci;
int nvmlDeviceGetPciInfo_v3(void *handle, pci *info) {{ strcpy(info->bus, "00000000:3B:00.0"); return 0; }}
typedef struct {{ unsigned pid; unsigned long long bytes; unsigned instance, compute; }} process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *found) {{
    FILE *file = fopen(USED ".processes", "r");
    unsigned room = *count;
    *count = 0;
    while (file && *count < room && fscanf(file, "%u", &found[*count].pid) == 1) ++*count;
    if (file) fclose(file);
    return !file;
}}
int nvmlDeviceGetUtilizationRates(void *handle, rates *told) {{ told->gpu = {UTILIZATION}; return UTILIZATION_ANSWER; }}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees) {{ *degrees = {TEMPERATURE}; return 0; }}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {{ *milliwatts = {MILLIWATTS}; return 0; }}
"""

_NOT_SUPPORTED = 3  # NVML_ERROR_NOT_SUPPORTED


def build(directory: Path, used: Path, *, tells_utilization: bool = True) -> Path:
    """The library in ``directory``; ``used`` is the file that holds the bytes in use."""
    source, library = directory / "driver.c", directory / NAME
    source.write_text(_SOURCE)
    defines = [f'-DUSED="{used}"', f"-DUTILIZATION_ANSWER={0 if tells_utilization else _NOT_SUPPORTED}"]
    subprocess.run(["gcc", "-shared", "-fPIC", *defines, "-o", library, source], check=True)
    return library
