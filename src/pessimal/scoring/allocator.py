"""Large buffers kept by the process instead of handed back to the system after every operation.

glibc returns blocks above a threshold at once, so each batch's activations are mapped, and their pages zeroed, anew:
6 to 20 % of the time of a bfloat16 scan (`experiments/LOG.md`).
"""

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_BYTES = 2**30


def keep_large_buffers() -> None:
    """From now on, blocks below 1 GiB stay with this process when they are freed. Does nothing without glibc."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, _BYTES)
        libc.mallopt(_TRIM_THRESHOLD, _BYTES)
