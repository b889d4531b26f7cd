"""The application that has them."""

from __future__ import annotations

from cordata import App

app = App("contract")
app.child_init(at="tests.contract.pool.commands:warm_up")
COMMANDS = (
    "echo",
    "echo_later",
    "fail",
    "refuse",
    "no_value",
    "pages",
    "pages_later",
    "broken_pages",
    "endless",
    "sleep",
    "add",
    "add_and_fail",
    "add_and_give_no_value",
    "shared",
    "about",
)
for name in COMMANDS:
    app.command(name, at=f"tests.contract.pool.commands:{name}")
