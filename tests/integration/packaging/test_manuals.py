"""The manual pages: one for each command, with references that lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.style.test_help import COMMANDS

from cordata import exit_codes

ROOT = Path(__file__).resolve().parents[3]
UNITS = ROOT / "units"
KINDS = ("service", "socket", "target", "timer", "slice")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All pages as the package's build writes them, without roff's escapes of characters."""
    directory = tmp_path_factory.mktemp("pages")
    command = [sys.executable, "packaging/man/pages.py", str(directory)]
    subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": "daemon"}, check=True)
    found = {path.name: path.read_text() for path in directory.glob("*.[1-9]")}
    return {name: text.replace("\\-", "-").replace("\\:", "") for name, text in found.items()}


def test_every_command_has_a_page_with_its_subcommands(pages: dict[str, str]) -> None:
    for path in COMMANDS:
        program, *words = path.split()
        text = pages["-".join([program, *words[:1]]) + ".1"]
        assert re.search(rf"^\.(?:SS|B) {path}\b", text, re.MULTILINE), path
        if words:
            assert f".BR {program}-{words[0]} (1)" in pages[f"{program}.1"]


def test_page_of_a_command_has_what_its_help_says_in_the_usual_sections(
    pages: dict[str, str],
) -> None:
    text = pages["cordata-job.1"]
    sections = re.findall(r"^\.SH (.*)$", text, re.MULTILINE)
    usual = "NAME SYNOPSIS DESCRIPTION OPTIONS EXAMPLES,EXIT STATUS,SEE ALSO"
    assert sections == [*usual.partition(",")[0].split(), *usual.split(",")[1:]]
    assert re.search(r"^\.B --period TEXT\nOnly this period", text, re.MULTILINE)
    assert re.search(r"^\.B 69\na run failed because", text, re.MULTILINE)
    assert "\ncordata job daily-report portfolio-report\n" in text


def test_references_between_pages_lead_somewhere(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        named = re.findall(r"^\.BR ((?:cordata|alpinehub)[\w.-]*) \((\d)\)", text, re.MULTILINE)
        assert named, name
        assert {f"{page}.{section}" for page, section in named} <= pages.keys(), name


def test_page_of_the_units_names_each_of_them(pages: dict[str, str]) -> None:
    text = pages["cordata-units.7"]
    for kind in KINDS:
        for path in UNITS.glob(f"*.{kind}"):
            assert re.search(rf"(?<![\w-]){path.stem}", text), path.name


def test_page_of_the_units_says_what_the_units_do(pages: dict[str, str]) -> None:
    """Its numbers come from the unit files; its sentences are about these lines."""
    worker = (UNITS / "worker@.service").read_text()
    assert "\nRequires=http.socket\n" in worker and "\nWants=primary.service\n" in worker
    assert "\nAfter=http.socket primary.service\n" in worker
    for name, target in (
        ("worker@.service", "workers.target"),
        ("workers.target", "cordata.target"),
        ("primary.service", "cordata.target"),
    ):
        text = (UNITS / name).read_text()
        assert f"\nPartOf={target}\n" in text and f"\nWantedBy={target}\n" in text, name
    socket = (UNITS / "http.socket").read_text()
    assert "PartOf=" not in socket and "\nWantedBy=sockets.target\n" in socket
    for name in ("worker@", "primary"):
        assert "\nStartLimitIntervalSec=0\n" in (UNITS / f"{name}.service").read_text()
    text = pages["cordata-units.7"]
    assert "\nworker@\talways\t500 ms\t78\t60 s\t35 s\t10 s\n" in text
    listed = text.partition(".SH EXIT STATUS")[2].partition(".SH ENVIRONMENT")[0]
    codes = {exit_codes.OK, exit_codes.FAILED, exit_codes.USAGE}
    codes |= {exit_codes.UNAVAILABLE, exit_codes.BUSY, exit_codes.CONFIG}
    assert re.findall(r"^\.B (\d+)$", listed, re.MULTILINE) == [str(one) for one in sorted(codes)]


def test_page_of_applications_shows_the_code_of_the_documents(pages: dict[str, str]) -> None:
    for code in ("# bookings.py\n", 'app.command("render"', "CREATE TABLE orders", "harness.drain"):
        assert code in pages["cordata-app.7"]
