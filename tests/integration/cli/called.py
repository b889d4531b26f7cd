"""The application of the tests of `cordata call` and `cordata pool`."""

from __future__ import annotations

from cordata import App

COMMANDS = "tests.integration.pool.child.commands"
app = App("called")
for name in (
    "about",
    "die",
    "echo",
    "fail",
    "hang",
    "note",
    "note_cancel",
    "numbers",
    "remember",
    "wait",
):
    app.command(name, at=f"{COMMANDS}:{name}")
app.child_init(at=f"{COMMANDS}:take_time")
