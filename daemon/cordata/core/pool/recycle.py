"""When a child has served long enough to be replaced by a fresh one."""

from __future__ import annotations

from zlib import crc32

#: Children that were started together must not all leave together.
_JITTER = 0.1


def longest_age_s(max_age_s: float, worker: str) -> float:
    """The age limit of this worker's child: up to a tenth less or more, always the same."""
    share = crc32(worker.encode()) / 0xFFFF_FFFF
    return max_age_s * (1.0 - _JITTER + 2.0 * _JITTER * share)


def due(
    *,
    max_calls: int,
    max_age_s: float,
    max_rss_bytes: int,
    worker: str,
    calls: int,
    age_s: float,
    rss_bytes: int,
) -> str | None:
    """Which limit a child has reached, as a word for the journal; None: none. 0: no limit."""
    if max_calls and calls >= max_calls:
        return f"max_calls: {calls} calls"
    if max_age_s and age_s >= longest_age_s(max_age_s, worker):
        return f"max_age_s: {age_s:.0f} s"
    if max_rss_bytes and rss_bytes >= max_rss_bytes:
        return f"max_rss_bytes: {rss_bytes // 1_048_576} MiB"
    return None
