"""The public names exist, and the application shipped with the runtime needs no others."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import alpinehub
import cordata
import cordata.errors

ROOT = Path(__file__).parents[3]


def test_every_public_name_can_be_imported() -> None:
    for name in cordata.__all__:
        assert getattr(cordata, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Ap'"):
        cordata.Ap  # noqa: B018


#: Public beside `cordata` itself.
MODULES = (
    "cordata.errors",
    "cordata.eventstore",
    "cordata.pool",
    "cordata.subscription",
    "cordata.supervisor",
    "cordata.terminal",
    "cordata.testing",
)


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
    assert {one for one in used - public if one.rpartition(".")[0] not in MODULES} == set()


def test_reference_lists_each_public_name_with_an_example() -> None:
    text = (ROOT / "docs/reference/python.md").read_text()
    table = text[text.index("## cordata\n") : text.index("## cordata.errors")]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == cordata.__all__
    for row in rows:
        compile_example(row[-1].rstrip(" |").strip("`"))


def test_reference_lists_each_public_module_with_an_example() -> None:
    text = (ROOT / "docs/reference/python.md").read_text()
    errors = text[text.index("## cordata.errors") : text.index("## Other modules")]
    table = text[text.index("## Other modules") :]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    listed = {row[0].strip("| `"): row for row in rows}
    assert set(listed) | {"cordata.errors"} == set(MODULES)
    for name in re.findall(r"`([A-Z]\w+)`", errors):
        assert issubclass(getattr(cordata.errors, name), cordata.CordataError)
    for module, row in listed.items():
        for name in re.findall(r"`([A-Z]\w+)`", row[1]):
            assert hasattr(importlib.import_module(module), name) or name == "NAME"
        compile_example(row[-1].rstrip(" |").strip("`"))


def compile_example(text: str) -> None:
    """Raises: SyntaxError when it is no Python within an async function."""
    ast.parse(f"async def example():\n    {text}\n")
