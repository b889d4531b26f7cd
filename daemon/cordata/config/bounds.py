"""Sanity bounds of the runtime's settings: all that is counted or timed is more than 0."""

from __future__ import annotations

import math

#: `section.key` that may be 0: waiting not at all makes sense there.
_MAY_BE_ZERO = frozenset(
    {
        "http.drain_s",
        "alert.cooldown_s",
        "engine.retention_s",
        "pool.queue_timeout_s",
        "pool.retries",
        "pool.max_calls",
        "pool.max_age_s",
        "pool.max_rss_bytes",
        "pool.cancel_grace_s",
        "pool.kill_grace_s",
    }
)
_RANGES: dict[str, tuple[float, float]] = {
    "mail.port": (1, 65_535),
    "store.readers": (1, 64),
    "store.max_batch": (1, 10_000),
    # One for a transaction that stays open, one for what must not wait for it.
    "store.pool_size": (2, 1_000),
    # Claimed in one statement; more would only hold the write lock longer.
    "engine.batch": (1, 10_000),
    # The old http-parser refuses a head of more than 80 KiB.
    "http.max_request_line_bytes": (64, 16_000),
    "http.max_header_bytes": (256, 65_536),
    # The length of a frame has four bytes.
    "pool.max_frame_bytes": (1024, 1_073_741_824),
}
#: (section, lower key, upper key): the first must not be above the second.
_ORDERED = (
    ("engine", "retry_min_s", "retry_max_s"),
    ("mail", "retry_min_s", "retry_max_s"),
    ("mail", "retry_max_s", "give_up_s"),
    ("pool", "health_timeout_s", "health_s"),
    ("pool", "restart_min_s", "restart_max_s"),
    ("pool", "max_session_bytes", "max_sessions_bytes"),
)


def complaint(section: str, key: str, value: object) -> str | None:
    """What is wrong with a value of the right type, or None."""
    name = f"{section}.{key}"
    if isinstance(value, tuple):
        twice = sorted({str(item) for item in value if value.count(item) > 1})
        if twice:
            return f"names {twice[0]!r} twice"
        if name == "worker.services" and not value:
            return "must name at least one service"
        if name == "http.trusted_proxies":
            return _proxy_complaint(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        return "must be a finite number"
    if name in _RANGES:
        low, high = _RANGES[name]
        return None if low <= value <= high else f"must be from {low} to {high}, not {value}"
    if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        return f"must be {'0 or more' if name in _MAY_BE_ZERO else 'more than 0'}, not {value}"
    return None


def _proxy_complaint(names: tuple[object, ...]) -> str | None:
    import ipaddress  # 5 ms, for those who set it

    for entry in names:
        try:
            if entry != "unix":
                ipaddress.ip_network(str(entry), strict=False)
        except ValueError:
            return f"names {entry!r}, which is no address, network or 'unix'"
    return None


def order_complaints(section: str, values: object) -> list[tuple[str, str]]:
    """(key, complaint) of pairs of keys that contradict each other."""
    found = []
    for name, lower, upper in _ORDERED:
        if name == section and getattr(values, lower) > getattr(values, upper):
            found.append((lower, f"must not be more than {upper} ({getattr(values, upper)})"))
    return found
