"""The alerts and the dashboard, by Prometheus' own program and against a real scrape."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.metrics.scrape import get
from tests.integration.metrics.test_metrics import ask, counted
from tests.integration.server.running import ROOT

FILES = ROOT / "packaging" / "prometheus"
RULES = FILES / "cordata.rules.yml"
DASHBOARD = FILES / "cordata.dashboard.json"
CASES = Path(__file__).with_name("alerts.yml")
#: Of a Prometheus server itself.
_NOT_OURS = {"up"}
_NAME = re.compile(r"\b(?:cordata_\w+|up)\b(?=[{\[) ]|$)")

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="Debian's prometheus is not installed"
)


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)


def rule_expressions() -> list[str]:
    """The text of each `expr`, of one line or several."""
    found = re.findall(r"^ +expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", RULES.read_text(), re.MULTILINE)
    return [several or one for several, one in found]


def panel_expressions() -> list[str]:
    """As Grafana sends them: its variables replaced."""
    document = json.loads(DASHBOARD.read_text())
    targets = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    targets += [one["expr"] for one in document["annotations"]["list"]]
    return [
        expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
        for expression in targets
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A scrape of a server that has done something."""
    with counted(tmp_path_factory.mktemp("counted")) as (running, listen):
        ask(running, "/double/2")
        text: str = get(listen)[2]
        return text


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    promtool("check", "rules", RULES)
    lines = [
        f"          - {{labels: '{{alertname=\"{name}\"}}', value: 1}}" for name in sorted(alerts())
    ]
    cases = CASES.read_text().replace("RULES", str(RULES)).replace("EXPECTED", "\n".join(lines))
    path = tmp_path / "alerts.yml"
    path.write_text(cases)
    assert "SUCCESS" in promtool("test", "rules", path)


def test_every_alert_is_in_the_documentation() -> None:
    table = (ROOT / "docs" / "operate" / "metrics.md").read_text().partition("| alert | when |")[2]
    assert sorted(re.findall(r"`(Cordata\w+)`", table)) == sorted(alerts())


def test_every_expression_is_valid_and_names_what_is_scraped(tmp_path: Path, page: str) -> None:
    names = set(re.findall(r"^(\w+)[{ ]", page, re.MULTILINE))
    expressions = panel_expressions()
    assert len(expressions) > 20 and len(rule_expressions()) == len(alerts())
    # JSON is YAML.
    rules: dict[str, Any] = {
        "groups": [
            {
                "name": "panels",
                "rules": [
                    {"record": f"panel:number:{number}", "expr": expression}
                    for number, expression in enumerate(expressions)
                ],
            }
        ]
    }
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps(rules))
    promtool("check", "rules", path)
    used = set[str]()
    for expression in expressions + rule_expressions():
        found = set(_NAME.findall(re.sub(r'"[^"]*"', '""', expression)))
        assert found, expression
        used |= found
    # Jobs are counted by their processes, which did not run here; nor is there a Redis.
    of_jobs = {name for name in used if name.startswith("cordata_job_")}
    assert used - names - _NOT_OURS - of_jobs == {"cordata_redis_up"}
    assert {"cordata_job_runs_total", "cordata_job_duration_seconds_sum"} <= of_jobs


def test_scrape_is_what_prometheus_expects(page: str) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=page,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # 3: only advice, which must be none either.
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
