from __future__ import annotations

import html
import json
from typing import Any

import pytest

from alpinehub.alpinebits.action import announce
from alpinehub.alpinebits.actions.handshake import intersect
from alpinehub.alpinebits.handshake_json import NoCapabilities, encode
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.models import Account

NOBODY = Account(id=1, name="u1", hotels=())
OURS = {name: announce(NOBODY, protocol) for name, protocol in PROTOCOLS.items()}


def common(*versions: object) -> Any:
    return json.loads(encode(intersect(json.dumps({"versions": list(versions)}), OURS)))


def test_handshake_keeps_common_versions_actions_and_nothing_else() -> None:
    assert common(
        {"version": "2030-10", "actions": [{"action": "action_OTA_Read"}]},
        {
            "version": "2024-10",
            "actions": [
                {"action": "action_OTA_Ping"},
                {"action": "action_OTA_Read", "supports": ["OTA_Read_accept_RoomRates"]},
                {"action": "action_OTA_HotelResNotif_Nothing", "supports": ["x"]},
            ],
        },
        {
            "version": "2022-10",
            "actions": [{"action": "action_OTA_Ping"}, {"action": "action_OTA_Read"}],
        },
        {"version": "2020-10", "actions": [{"action": "action_OTA_None", "supports": []}]},
    ) == {
        "versions": [
            {"version": "2024-10", "actions": [{"action": "action_OTA_Read"}]},
            {
                "version": "2022-10",
                "actions": [{"action": "action_OTA_Ping"}, {"action": "action_OTA_Read"}],
            },
            {"version": "2020-10"},
        ]
    }


@pytest.mark.parametrize(
    "echo", ["{}", '{"versions":null}', '{"versions":[]}', '{"versions":[{"version":"1"}],"x":1}']
)
def test_handshake_leaves_out_empty_arrays(echo: str) -> None:
    assert encode(intersect(echo, OURS)) == "{}"


def test_handshake_takes_double_entries_together() -> None:
    assert common(
        {"version": "2024-10"},
        {"version": "2024-10", "actions": None},
        {
            "version": "2024-10",
            "actions": [{"action": "action_OTA_Read", "supports": None}] * 2,
        },
    ) == {"versions": [{"version": "2024-10", "actions": [{"action": "action_OTA_Read"}]}]}


def test_handshake_reads_escaped_json() -> None:
    echo = html.escape('{"versions":[{"version":"2020-10"}]}')
    assert json.loads(encode(intersect(echo, OURS))) == {"versions": [{"version": "2020-10"}]}


@pytest.mark.parametrize(
    "echo",
    [
        *("hello", "[]", '"x"', "1", '{"versions":{}}', '{"versions":["2024-10"]}', "[" * 100_000),
        *('{"versions":[{"version":1}]}', '{"versions":[{"version":"1","actions":[{}]}]}'),
        *("", "null", "\ud800", '{"versions":[{}]}'),
    ],
)
def test_handshake_has_no_answer_when_echo_is_not_capabilities(echo: str) -> None:
    with pytest.raises(NoCapabilities):
        intersect(echo, OURS)
