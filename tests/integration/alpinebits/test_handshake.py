from __future__ import annotations

import html
import json
from typing import Any

import pytest
from lxml import etree
from tests.integration.alpinebits import material

from alpinehub.alpinebits.action import announce
from alpinehub.alpinebits.actions.handshake import ECHO, intersect, ping
from alpinehub.alpinebits.handshake_json import NoCapabilities, encode
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import read_here
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


@pytest.mark.parametrize("version", [*PROTOCOLS][1:])
@pytest.mark.parametrize("folder", ["2020-10", "2024-10"])
def test_ping_answer_is_valid_and_echoes_when_asked_with_a_sample(
    folder: str, version: str
) -> None:
    echo = read_here(material.message(folder, "Handshake-OTA_PingRQ.xml"), PROTOCOLS[version], ECHO)
    document = ping(encode(intersect(echo, OURS)), echo)
    assert material.problems(document, version) == []
    assert read_ping_answer(document) == echo


def read_ping_answer(document: bytes) -> str:
    return etree.fromstring(document)[-1].text or ""


def test_ping_answer_echoes_to_the_character() -> None:
    echo = '\t{"versions": [] , "ä<&>\r\n]]>": "&quot;𝄞"} '
    assert read_ping_answer(ping("{}", echo)) == echo
