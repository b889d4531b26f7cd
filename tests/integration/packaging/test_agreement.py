"""What is said in several places is said the same: versions, ids, dependencies, hardening."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordata
from cordata import events, exit_codes
from cordata.cli import alerts
from cordata.config import Config

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVICES = sorted((ROOT / "units").glob("*.service"))
#: Python distributions by the module that they give, where it is not the distribution's own name.
DISTRIBUTIONS = {
    "systemd": "systemd-python",
    "nacl": "PyNaCl",
    "python_multipart": "python-multipart",
    "prometheus_client": "prometheus-client",
}
#: Modules of an extra, imported only if a setting or option asks for them: module -> extra.
OPTIONAL = {"opentelemetry": "otel", "watchfiles": "dev"}


def test_version_is_the_same_in_every_place() -> None:
    version = PROJECT["version"]
    assert cordata.__version__ == version
    changelog = (ROOT / "packaging/debian/changelog").read_text()
    assert re.match(r"cordata \((.+?)\)", changelog)[1] == version  # type: ignore[index]
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == version  # type: ignore[index]


def test_catalog_explains_each_message_id_once() -> None:
    explained = re.findall(
        r"^-- (\w+)$", (ROOT / "units/catalog/cordata.catalog").read_text(), re.M
    )
    known = [value for name, value in vars(events).items() if name.isupper()]
    assert sorted(explained) == sorted(known)


def test_imports_are_declared_as_dependencies() -> None:
    declared = {re.split(r"[<>=\[ ]", line)[0].lower() for line in PROJECT["dependencies"]}
    for path, module in imports(ROOT / "daemon"):
        name = DISTRIBUTIONS.get(module, module).lower()
        if extra := OPTIONAL.get(module):
            assert any(one.startswith(module) for one in PROJECT["optional-dependencies"][extra])
            continue
        assert module in ("cordata", "alpinehub") or name in declared, f"{path}: {module}"


def debian_name(distribution: str) -> str:
    """The Debian package of a Python distribution."""
    name = distribution.lower()
    return {"systemd-python": "python3-systemd", "pynacl": "python3-nacl"}.get(
        name, f"python3-{name}"
    )


def test_build_and_host_trees_have_every_dependency_of_the_packages() -> None:
    control = (ROOT / "packaging/debian/control").read_text().partition("\nPackage:")[0]
    tree = (ROOT / "packaging/build/packages-tree").read_text().split()
    for line in PROJECT["dependencies"]:
        debian = debian_name(re.split(r"[<>=\[ ]", line)[0])
        assert f" {debian},\n" in control and debian in tree


@pytest.mark.parametrize("package", ["cordata", "alpinehub"])
def test_debian_package_depends_on_what_its_code_imports(package: str) -> None:
    control = (ROOT / "packaging/debian/control").read_text()
    stanza = control.partition(f"\nPackage: {package}\n")[2].partition("\nPackage:")[0]
    depends = stanza.partition("Depends:")[2].partition("\nDescription:")[0]
    named = set(re.findall(r"python3-[a-z0-9-]+", depends.partition("\nSuggests:")[0]))
    modules = {module for _, module in imports(ROOT / "daemon" / package)} - set(OPTIONAL)
    # psycopg and redis load their C halves themselves.
    loaded = {"cordata": {"python3-psycopg-c", "python3-hiredis"}, "alpinehub": set()}[package]
    wanted = {
        debian_name(DISTRIBUTIONS.get(module, module)) for module in modules - {package, "cordata"}
    }
    assert named == wanted | loaded


def imports(folder: Path) -> Iterator[tuple[Path, str]]:
    """The modules that the code imports, but those of Python: file and first part of the name."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for module in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names):
                yield path, module


def settings(path: Path) -> dict[str, list[str]]:
    """Values of each setting in a unit's [Service] section."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().partition("[Service]")[2].partition("\n[")[0].splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_secrets_are_named_where_people_look() -> None:
    code = (ROOT / "daemon/cordata/context_factory.py").read_text()
    used = {"master-key", *re.findall(r'\.text\("([a-z-]+)"\)', code)}
    sample = (ROOT / "packaging/cordata.toml").read_text().partition("\n[app]")[0]
    page = (ROOT / "packaging/man/cordata.toml.5.in").read_text().replace("\\-", "-")
    pattern = r"\b[a-z]+-(?:key|user|password|token)\b"
    assert used == set(re.findall(pattern, sample)) == set(re.findall(pattern, page))


def test_every_service_is_hardened_and_each_line_has_its_reason() -> None:
    links = "".join(path.read_text() for path in (ROOT / "packaging/debian").glob("*.links"))
    found = re.findall(r"hardening\.conf \S+/(\S+)\.d/00-hardening\.conf$", links, re.M)
    assert sorted(found) == [path.name for path in SERVICES]
    text = (ROOT / "units/hardening.conf").read_text()
    lines = text.partition("[Service]\n")[2].splitlines()
    # The reason is in the line above; a second filter goes with the first one.
    for above, line in zip(["", *lines], lines, strict=False):
        explained = above.startswith("#") or line.startswith("SystemCallFilter=~")
        assert line.startswith("#") or explained, line


def test_services_keep_the_contract_of_the_units() -> None:
    for path in SERVICES:
        service, text = settings(path), path.read_text()
        assert service["User"] == service["Group"] == ["cordata"], path.name
        assert service["Slice"] == ["cordata.slice"], path.name
        assert "RuntimeDirectory" not in service, path.name
        assert ("\nOnFailure=alert@%n.service" in text) == (path.name != "alert@.service"), (
            path.name
        )
        lasting = service["Type"] != ["oneshot"]
        assert (service.get("Restart") == ["always"]) == lasting, path.name
        assert (service.get("RestartPreventExitStatus") == ["78"]) == lasting, path.name


def test_alert_is_kept_before_its_unit_is_killed_when_the_mail_server_does_not_answer() -> None:
    [limit_s] = settings(ROOT / "units/alert@.service")["TimeoutStartSec"]
    # To connect and to send; and to wait until the primary has stored what is in the file.
    most_s = 2 * alerts.MAIL_S + Config().store.write_timeout_s
    assert most_s < 0.9 * float(limit_s)


def test_unit_of_the_report_tries_again_what_passes_and_makes_the_summary_whatever_fails() -> None:
    said = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / "units/job@.service").read_text(), re.M))
    [drop_in] = (ROOT / "units/job@daily-report.service.d").iterdir()
    # Of several ExecStart= lines none runs after one that failed.
    command = "/usr/bin/cordata job daily-report portfolio-report"
    assert re.findall(r"^ExecStart=(.*)$", drop_in.read_text(), re.M) == ["", command]
    never = {int(code) for code in said["RestartPreventExitStatus"].split()}
    assert said["Restart"] == "on-failure" and never == {exit_codes.FAILED, 2, exit_codes.CONFIG}
    assert int(said["SuccessExitStatus"]) == exit_codes.BUSY and exit_codes.UNAVAILABLE not in never
