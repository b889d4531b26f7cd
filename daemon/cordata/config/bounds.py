"""Bounds of the runtime's settings: what is outside cannot work, or only by mistake."""

from __future__ import annotations

import math
import re
from pathlib import Path

#: What a microsecond count of 64 bits holds easily, and nobody waits for.
_YEARS_S = 315_360_000
_DAY_S = 86_400
#: Of every number, from and to; 0 only where waiting not at all makes sense. Shorter pauses than
#: these would keep a processor busy with nothing else.
RANGES: dict[str, tuple[float, float]] = {
    "worker.stop_timeout_s": (0.1, _DAY_S),
    "http.max_connections": (1, 100_000),
    # The old http-parser refuses a head of more than 80 KiB.
    "http.max_request_line_bytes": (64, 16_000),
    "http.max_header_bytes": (256, 65_536),
    "http.max_headers": (1, 10_000),
    "http.max_body_bytes": (1, 2**40),
    "http.first_byte_timeout_s": (0.1, _DAY_S),
    "http.header_timeout_s": (0.1, _DAY_S),
    "http.body_timeout_s": (0.1, _DAY_S),
    "http.response_timeout_s": (0.1, _DAY_S),
    "http.drain_s": (0, 3600),
    "store.write_timeout_s": (0.05, 3600),
    "store.transaction_timeout_s": (0.05, 3600),
    "store.read_timeout_s": (0.05, _DAY_S),
    "store.readers": (1, 64),
    "store.max_batch": (1, 10_000),
    "store.max_waiting": (1, 1_000_000),
    "store.wal_limit_bytes": (32_768, 2**40),
    # One for a transaction that stays open, one for what must not wait for it.
    "store.pool_size": (2, 1_000),
    "store.connect_timeout_s": (0.1, 3600),
    "broker.timeout_s": (0.05, 3600),
    "broker.window_s": (1, _YEARS_S),
    # Claimed in one statement; more would only hold the write lock longer.
    "engine.batch": (1, 10_000),
    # Each is a task from the start on.
    "engine.concurrency": (1, 1_000),
    "engine.claim_timeout_s": (0.1, _DAY_S),
    "engine.poll_s": (0.01, _DAY_S),
    "engine.retry_min_s": (0.001, _DAY_S),
    "engine.retry_max_s": (0.001, 30 * _DAY_S),
    "engine.retention_s": (0, _YEARS_S),
    "primary.standby_poll_s": (0.01, 3600),
    "primary.stop_timeout_s": (0.1, _DAY_S),
    "mail.port": (1, 65_535),
    "mail.timeout_s": (0.1, 3600),
    "mail.retry_min_s": (0.001, _DAY_S),
    "mail.retry_max_s": (0.001, 30 * _DAY_S),
    "mail.give_up_s": (1, _YEARS_S),
    "mail.retention_s": (1, _YEARS_S),
    "alert.cooldown_s": (0, 30 * _DAY_S),
    "alert.count": (1, 1_000_000),
    "alert.wait_s": (0, 30 * _DAY_S),
    "alert.max_per_hour": (1, 1000),
    "pool.call_timeout_s": (0.001, _DAY_S),
    "pool.queue_timeout_s": (0, _DAY_S),
    "pool.max_waiting": (1, 10_000_000),
    "pool.max_waiting_bytes": (1024, 2**40),
    "pool.retries": (0, 100),
    # The length of a frame has four bytes.
    "pool.max_frame_bytes": (1024, 1_073_741_824),
    "pool.max_connections": (1, 1_000_000),
    "pool.session_ttl_s": (0.001, _YEARS_S),
    "pool.max_sessions": (1, 100_000_000),
    "pool.max_session_bytes": (1, 1_073_741_824),
    "pool.max_sessions_bytes": (1, 2**40),
    "pool.max_globals_bytes": (1, 1_073_741_824),
    "pool.poison_limit": (1, 1_000_000),
    "pool.poison_pause_s": (0.1, _DAY_S),
    "pool.cancel_grace_s": (0, 3600),
    "pool.kill_grace_s": (0, 3600),
    "pool.unread_timeout_s": (0.1, _DAY_S),
    "pool.child_start_timeout_s": (0.001, 3600),
    "pool.init_timeout_s": (0.1, _DAY_S),
    "pool.health_s": (0.1, _DAY_S),
    "pool.health_timeout_s": (0.05, 3600),
    "pool.max_calls": (0, 2**53),
    "pool.max_age_s": (0, _YEARS_S),
    "pool.max_rss_bytes": (0, 2**50),
    "pool.restart_min_s": (0.001, 3600),
    "pool.restart_max_s": (0.001, _DAY_S),
    "pool.stop_timeout_s": (0.1, _DAY_S),
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: A name, an address, one in brackets. A port is a setting of its own.
_HOST = re.compile(r"[\w.-]*|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?")
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
    texts = value if isinstance(value, tuple) else (value,)
    if any(_CONTROL.search(str(text)) for text in texts if isinstance(text, str | Path)):
        return "has a line break or another control character"
    if isinstance(value, str):
        return _text_complaint(name, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        return "must be a finite number"
    low, high = RANGES[name]
    return None if low <= value <= high else f"must be from {low} to {high}, not {value}"


def _text_complaint(name: str, value: str) -> str | None:
    if name == "mail.host" and not _HOST.fullmatch(value):
        return "must be the name or address of a server alone; [mail] port is its port"
    if name == "mail.sender" and not re.fullmatch(
        r"[^<>]*<[^<>\s@]+@[^<>\s@]+>|[^<>\s@]+@[^<>\s@]+", value
    ):
        return "must be an address, user@host or Name <user@host>"
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
