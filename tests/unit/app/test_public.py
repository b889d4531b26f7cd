"""The public names exist, and the application shipped with the runtime needs no others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import alpinehub
import cordata
import cordata.terminal


def test_every_public_name_can_be_imported() -> None:
    for name in cordata.__all__:
        assert getattr(cordata, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Ap'"):
        cordata.Ap  # noqa: B018


def test_alpinehub_uses_public_names_only() -> None:
    used: set[str] = set()
    for path in Path(alpinehub.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                used |= {name.name for name in node.names if name.name.startswith("cordata")}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cordata"):
                used |= {f"{node.module}.{name.name}" for name in node.names}
    assert used
    public = {f"cordata.{name}" for name in cordata.__all__} | {"cordata.__version__"}
    # A package of its own: a worker, which draws nothing, does not import it.
    public |= {f"cordata.terminal.{name}" for name in vars(cordata.terminal)}
    assert used <= public
