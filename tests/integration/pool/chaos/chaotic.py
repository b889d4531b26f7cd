"""The application whose processes are killed."""

from __future__ import annotations

from cordata import App

app = App("chaotic")
for name in ("mark", "mark_async", "pages", "hang", "fail"):
    app.command(name, at=f"tests.integration.pool.chaos.commands:{name}")
