"""What `cordata new` makes, on a host with the package: its tests, and itself as the service."""

from __future__ import annotations

import json
import re

from tests.host.machine import Host, wait_for

ORDERS = "http://127.0.0.1:8080/orders"


def test_new_application_passes_its_tests_and_is_served_by_the_units(host: Host) -> None:
    host.sh("cordata new myapp --dir /srv/myapp")
    own = "cd /srv/myapp && PYTHONPATH=/usr/share/cordata PYTHONDONTWRITEBYTECODE=1 python3"
    assert "6 passed" in host.sh(f"{own} -m pytest -q -p no:cacheprovider")

    readme = host.sh("cat /srv/myapp/README.md")
    [config] = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    [(start, restart)] = re.findall(r"^`(.*?)` starts it; later `(.*?)` ", readme, re.MULTILINE)
    host.sh(f"cat >/etc/cordata/cordata.toml <<'END'\n{config}END")
    host.sh(start)
    host.sh(restart)
    order = """curl -sS --retry 10 --retry-all-errors --json '{"item": "boots"}'"""
    assert json.loads(host.sh(f"{order} {ORDERS}"))["id"]
    wait_for(lambda: json.loads(host.sh(f"curl -sS {ORDERS}"))[0]["confirmed"], what="its handler")
    found = json.loads(host.sh(f"curl -sS {ORDERS}"))
    assert ">boots<" in host.sh(f"curl -sS {ORDERS}/{found[0]['id']}/label")
    assert ">skis<" in json.loads(host.sh("""cordata call label --json '{"item": "skis"}'"""))
    host.sh("cordata job figures")
    listed = json.loads(host.sh("cordata outbox list --type order.placed --json"))
    assert [entry["state"] for entry in listed["items"]] == ["done"]
    assert "confirmed  boots" in host.sh(
        f"{own} -m myapp orders --config /etc/cordata/cordata.toml"
    )
