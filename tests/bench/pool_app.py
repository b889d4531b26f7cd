"""The application whose commands are measured."""

from __future__ import annotations

from cordata import App

app = App("bench")
for name in ("echo", "spin", "change"):
    app.command(name, at=f"tests.bench.pool_work:{name}")
