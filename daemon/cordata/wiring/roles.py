"""The roles that run an application, by the command that starts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cordata.wiring.event_loop import run_on_uvloop
from cordata.wiring.primary import run_primary
from cordata.wiring.role import Role
from cordata.wiring.worker import run_worker

#: Every long-running role by its command.
ROLES: dict[str, Callable[[Role], Awaitable[int]]] = {
    "worker": run_worker,
    "primary": run_primary,
}


def run_role(name: str, role: Role) -> int:
    """Run a role on uvloop until it ends. Returns its exit code."""
    return run_on_uvloop(lambda: ROLES[name](role))
