"""A stand-in for the driver of a machine with four GPUs, of which NVLink joins 0 with 1 and 2 with 3. Needs gcc.

Only what the server asks is there: torch finds no GPU by it. What happens to a GPU, files say in the directory of the
library: ``NvidiaMachine`` writes them.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from fakes.nvidia_driver import NAME

_SOURCE = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } process;
typedef struct { void *device; unsigned long long type, data; unsigned instance, compute; } event;
typedef struct { char legacy[16]; unsigned ids[5]; char bus[32]; } pci;
static long number(void *handle) { return (long)handle - 1; }
static FILE *said(const char *what, void *handle) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%ld", FOLDER, what, number(handle));
    return fopen(path, "r");
}
static unsigned long long figure(const char *what, void *handle) {
    unsigned long long found = 0;
    FILE *file = said(what, handle);
    if (file && fscanf(file, "%llu", &found) != 1) found = 1;
    if (file) fclose(file);
    return found;
}
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return figure("refuses", (void *)1); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(index + 1L);
    return index >= 4 ? 2 : figure("lost", *handle) ? 15 : 0;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending) {
    *now = *pending = figure("mig", handle) > 0;
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance) {
    *instance = handle + 100 * (index + 1);
    return index < figure("mig", handle) ? 0 : 6;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    unsigned index = 9;
    sscanf(uuid, "GPU-000%u", &index);
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *instance, void **handle) {
    *handle = (void *)(number(instance) % 100 + 1);
    return number(instance) < 100 ? 2 : 0;
}
int nvmlSystemGetDriverVersion(char *version, unsigned length) { snprintf(version, length, "580.1"); return 0; }
int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
    snprintf(name, length, figure("fast", handle) ? "Fast one" : "Stand-in");
    return 0;
}
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) {
    long gpu = number(handle) % 100, instance = number(handle) / 100;
    if (instance) snprintf(uuid, length, "MIG-000%ld-%ld", gpu, instance - 1);
    else snprintf(uuid, length, "GPU-000%ld", gpu);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory *info) {
    memset(info, 0, sizeof *info);
    if (figure("no-memory", handle)) return 3;
    while (figure("hangs", handle)) usleep(10000);
    info->total = 1ULL << 34;
    info->used = figure("used", handle);
    info->free = info->total - info->used;
    return 0;
}
int nvmlDeviceGetP2PStatus(void *one, void *other, int caps, int *status) {
    *status = number(one) / 2 == number(other) / 2 ? 0 : 5;
    return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level) { *level = 50; return 0; }
int nvmlDeviceGetPciInfo_v3(void *handle, pci *info) {
    snprintf(info->bus, sizeof info->bus, "00000000:%02lX:00.0", 0x3a + number(handle));
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *found) {
    unsigned room = *count;
    FILE *file = said("processes", handle);
    process one = {0};
    *count = 0;
    while (file && fscanf(file, "%u %llu", &one.pid, &one.bytes) == 2) {
        if (*count < room) found[*count] = one;
        ++*count;
    }
    if (file) fclose(file);
    return *count > room ? 7 : 0;
}
int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count) {
    *count = figure("errors", handle);
    return 0;
}
int nvmlDeviceGetRemappedRows(void *handle, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
    *a = *b = *pending = 0;
    *failed = figure("remap", handle);
    return 0;
}
int nvmlEventSetCreate(void **events) { *events = (void *)1; return 0; }
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *events) { return 0; }
int nvmlEventSetWait_v2(void *events, event *found, unsigned milliseconds) {
    for (unsigned waited = 0; waited <= milliseconds; waited += 20, usleep(20000))
        for (long gpu = 1; gpu <= 4; gpu++) {
            if (!(found->data = figure("xid", (void *)gpu))) continue;
            char path[4096];
            snprintf(path, sizeof path, "%s/xid-%ld", FOLDER, gpu - 1);
            unlink(path);
            found->device = (void *)gpu;
            found->type = 8;
            return 0;
        }
    return 10;
}
int nvmlDeviceGetUtilizationRates(void *handle, void *rates) { return 3; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees) { return 3; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { return 3; }
"""


def build(directory: Path) -> Path:
    """The directory of the library, for LD_LIBRARY_PATH."""
    source = directory / "machine.c"
    source.write_text(_SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", f'-DFOLDER="{directory}"', "-o", directory / NAME, source], check=True)
    return directory


@dataclass(frozen=True)
class NvidiaMachine:
    """What happens to the GPUs of the library in ``directory``, by their indices, from the next question on."""

    directory: Path

    def say(self, what: str, gpu: int, value: str = "1") -> None:
        """From the next question on.

        ``used`` bytes, ``processes`` (pids and bytes), ``errors``, ``remap``, ``lost``, ``hangs``, ``xid``, ``mig``
        instances, ``fast``, ``no-memory``; of GPU 0 also with which error the driver ``refuses``.
        """
        new = self.directory / f".{what}-{gpu}"
        new.write_text(value)
        new.replace(self.directory / f"{what}-{gpu}")

    def unsay(self, what: str, gpu: int) -> None:
        (self.directory / f"{what}-{gpu}").unlink(missing_ok=True)
