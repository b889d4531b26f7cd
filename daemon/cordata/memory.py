"""Settings of the garbage collector and of malloc for a long-lived process."""

from __future__ import annotations

import ctypes
import gc

#: Option and value of mallopt(3). Large bodies are read by 64 KiB at most.
_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 32_768


def freeze_gc(collect_after: int) -> None:
    """Exempt all objects that exist now from garbage collection, and make it run less often.

    What was imported and opened so far stays for good. And a collection for every 700 new
    containers took 5 to 10 % of a worker's time: a request makes hundreds, nearly all of which are
    freed without it. It runs after `collect_after` now.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(collect_after, 20, 50)
    _return_large_blocks()


def _return_large_blocks() -> None:
    """Have every large block given back to the system when it is freed.

    By default glibc takes blocks as large as the largest one freed so far, up to 32 MB, from the
    heap, where a small one above keeps them: after some large bodies a worker stayed at two to four
    times its size. A threshold that is set stays where it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # not every C library has it
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
