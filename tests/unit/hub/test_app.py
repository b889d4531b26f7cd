"""What the application registers: the statements its code names exist, and the other way round."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import alpinehub
from alpinehub.app import app
from cordata.store import Queries

SOURCE = Path(alpinehub.__file__).parent
_CALL = re.compile(
    r"\.(?:write|execute|fetch_one|fetch_all)\(\s*\"(?P<name>[a-z_.]+)\"", re.MULTILINE
)


def literals(text: str) -> set[str]:
    """The strings of a module: a table of statements names them beside the call."""
    nodes = ast.walk(ast.parse(text))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_every_named_statement_exists_and_is_used() -> None:
    texts = [path.read_text() for path in SOURCE.rglob("*.py")]
    used = {m["name"] for text in texts for m in _CALL.finditer(text)}
    said = set[str]().union(*map(literals, texts))
    own = set(Queries.load(app.query_packages, "sqlite").by_name)
    own = {name for name in own if "." not in name}
    assert used <= own, f"no such statement: {sorted(used - own)}"
    # One that is misspelt in a table leaves the right one unused.
    assert own <= said, f"nobody uses: {sorted(own - said)}"


def test_every_event_has_a_handler_or_is_meant_for_others() -> None:
    assert {s.type for s in app.handlers} == {"push.wanted", "push.due"}
    assert app.published == {
        f"reservation.{what}" for what in ("received", "modified", "cancelled")
    }
    assert len({s.group for s in app.handlers}) == len(app.handlers)
