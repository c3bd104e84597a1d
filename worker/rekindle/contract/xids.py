"""Messages of NVIDIA's driver by their numbers (Xid), as its catalogue of Xids of Ampere and newer GPUs has them."""

XIDS = {
    48: "a memory error that cannot be corrected",
    62: "its own controller has stopped",
    64: "a damaged row of its memory could not be replaced",
    74: "an error of NVLink",
    79: "the GPU has fallen off the bus",
    95: "a memory error that was not contained",
    110: "a fault of its security controller",
    119: "its system processor does not respond",
    120: "an error of its system processor",
    140: "a memory error that cannot be corrected",
    143: "it could not be initialised",
    145: "an error of NVLink",
    149: "an error of NVLink",
}
"""After these a GPU needs a reset or a repair; the others concern one job."""

HARDWARE_XIDS = XIDS.keys() | {94, 136, 154}
"""Also a memory error that was contained, a link that was not trained, and that a reset is needed: the hardware failed.

Not 63, which records that a row will be replaced, and not 92 and 121, which count errors that were corrected.
"""
