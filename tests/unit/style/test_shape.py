"""The shape of the code, where no linter looks: file names, where tasks come from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
DAEMON = TESTS.parent / "daemon"
#: Names that say nothing about what is inside.
VAGUE = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}


def modules() -> list[Path]:
    found = sorted(
        path for name in ("cordata", "alpinehub") for path in (DAEMON / name).rglob("*.py")
    )
    assert len(found) > 100
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(tree(path))


def test_no_name_of_a_module_is_vague() -> None:
    assert [path for path in modules() if path.stem in VAGUE or path.parent.name in VAGUE] == []


def test_no_imports_go_round_in_a_circle() -> None:
    """Imports for type checkers and within functions count, too."""
    names = {path: ".".join(path.relative_to(DAEMON).with_suffix("").parts) for path in modules()}
    names = {path: name.removesuffix(".__init__") for path, name in names.items()}
    known = set(names.values())
    imported = {
        name: {
            inner if (inner := f"{node.module}.{alias.name}") in known else node.module or ""
            for node in nodes(path)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for path, name in names.items()
    }
    TopologicalSorter(imported).prepare()


def test_tasks_come_from_task_groups_only() -> None:
    """A task that no group owns can fail unseen, or outlive what it works for."""
    loose = [
        f"{path.relative_to(DAEMON)}:{node.lineno}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and (
            node.attr in ("ensure_future", "gather")
            or (node.attr == "create_task" and ast.unparse(node.value) in ("asyncio", "loop"))
            or (node.attr == "create_task" and ast.unparse(node.value).endswith("_loop"))
        )
    ]
    assert loose == []


def test_no_process_of_a_test_outlives_it() -> None:
    """Each that is started in the background is `watched`, so that kill -9 leaves none behind."""
    loose = []
    for path in sorted(TESTS.rglob("*.py")):
        if not any(word in path.read_text() for word in ("Popen", "create_subprocess_exec")):
            continue  # most: to parse and print them all takes seconds
        calls = [ast.unparse(node.func) for node in nodes(path) if isinstance(node, ast.Call)]
        started = calls.count("subprocess.Popen") + calls.count("asyncio.create_subprocess_exec")
        if started > calls.count("watched") and path.name != "reaper.py":
            loose.append(path.relative_to(TESTS))
    assert loose == []
