"""A fixture for tests that run a primary in their own process, and are not about its lease."""

from __future__ import annotations

import pytest

from cordata.store.postgres import lease

#: How much longer everything is: a process of a busy machine may get no processor for 5 s.
_TIMES = 20


@pytest.fixture(autouse=True)
def patient_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL: the holder trusts its last proof, and the server waits for one, for minutes.

    Only in this process; those that a test starts, and kills, have a lease as in production.
    """
    silent = f"'{lease.SILENT_S * 1000:.0f}'"
    assert lease._WATCHED.count(silent) == 2
    patient = f"'{lease.SILENT_S * _TIMES * 1000:.0f}'"
    monkeypatch.setattr(lease, "_WATCHED", lease._WATCHED.replace(silent, patient))
    for name in ("TRUST_S", "SILENT_S", "_ANSWER_S"):
        monkeypatch.setattr(lease, name, getattr(lease, name) * _TIMES)
