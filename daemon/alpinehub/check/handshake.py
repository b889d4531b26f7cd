"""Checks of the handshake, and of getVersion and getCapabilities, which came before it."""

from __future__ import annotations

import html
import json

from alpinehub.alpinebits import handshake_json
from alpinehub.alpinebits.action import HANDSHAKE
from alpinehub.alpinebits.handshake_json import NoCapabilities
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.offer import action_of, offer
from alpinehub.alpinebits_client.reply import HANDSHAKE_STATUS, Reply
from alpinehub.check.peer import NO_VERSION, Peer
from alpinehub.check.suite import PASSED, Check, CheckFailed, Result, failed, warning

_READ, _PING = "action_OTA_Read", "action_OTA_Ping"


def _common(reply: Reply) -> dict[str, dict[str, tuple[str, ...]]]:
    """The common capabilities: version -> action -> supports. Raises: CheckFailed."""
    if reply.outcome not in ("success", "advisory"):
        raise CheckFailed(reply.text or f"the outcome is {reply.outcome}")
    found = [one for one in reply.remarks if one.status == HANDSHAKE_STATUS]
    if len(found) != 1:
        raise CheckFailed(f"{len(found)} warnings with Status={HANDSHAKE_STATUS}, not one")
    try:
        return handshake_json.decode(found[0].text)
    except NoCapabilities:
        raise CheckFailed("the warning's text is not the JSON of a handshake") from None


def _offer(version: str, *actions: dict[str, object]) -> str:
    return json.dumps({"versions": [{"version": version, "actions": list(actions)}]})


async def _shake(peer: Peer, echo: str) -> dict[str, dict[str, tuple[str, ...]]]:
    return _common(await peer.handshake(echo))


async def form_of_answer(peer: Peer) -> Result:
    """Success, Warnings, EchoData, as the schema has them; the warning is of Type 11."""
    reply = await peer.handshake(offer())
    _common(reply)
    if reply.invalid:
        return failed(f"it breaks the schema: {reply.invalid}")
    kinds = {one.type for one in reply.remarks if one.status == HANDSHAKE_STATUS}
    return PASSED if kinds == {"11"} else failed(f"the warning's Type is {kinds}, not 11")


async def echo(peer: Peer) -> Result:
    """EchoData is sent back unchanged, with its white space."""
    sent = offer().replace('{"versions"', '{ "note" : "<&é" ,\n  "versions"')
    reply = await peer.handshake(sent)
    came = ["".join(map(str, one.itertext())) for one in reply.all("EchoData")]
    if not came:
        return failed(reply.text or "there is no EchoData")
    if came[0] == sent:
        return PASSED
    same = came[0].split() == sent.split()
    return failed("only white space differs" if same else "EchoData is not what was sent")


async def nothing_unknown(peer: Peer) -> Result:
    """An unknown version, action and support are left out."""
    name = peer.protocol.name
    sent = json.dumps(
        {
            "versions": [
                {"version": NO_VERSION, "actions": [{"action": _READ}]},
                {
                    "version": name,
                    "actions": [
                        {"action": _READ, "supports": ["OTA_Read_nothing_at_all"]},
                        {"action": "action_OTA_Nothing"},
                    ],
                },
            ]
        }
    )
    common = await _shake(peer, sent)
    if NO_VERSION in common:
        return failed("a version that does not exist is among the common ones")
    actions = common.get(name, {})
    if "action_OTA_Nothing" in actions:
        return failed("an action that does not exist is among the common ones")
    if _READ not in actions:
        return failed(f"{_READ} is left out because none of its supports is common")
    return failed("an unknown support is common") if actions[_READ] else PASSED


async def nothing_not_offered(peer: Peer) -> Result:
    """What the client did not offer is not common."""
    name = peer.protocol.name
    common = await _shake(peer, _offer(name, {"action": _READ}))
    more = {version: set(actions) - {_READ} for version, actions in common.items()}
    if set(common) - {name}:
        return failed("a version that was not offered is common")
    return failed("an action that was not offered is common") if any(more.values()) else PASSED


async def announced(peer: Peer) -> Result:
    """Each announced action is supported. It is called with an empty document, so that it changes
    nothing.
    """
    common = await _shake(peer, offer())
    unknown_answer = await peer.call("OTA_Nothing:AtAll", b"<x/>")
    unknown = []
    for capability in common.get(peer.protocol.name, {}):
        answer = await peer.call(action_of(capability), b"<x/>")
        if (answer.status, answer.body) == (unknown_answer.status, unknown_answer.body):
            unknown.append(capability)
    text = f"announced, but not supported: {', '.join(unknown[:5])}"
    return failed(text) if unknown else PASSED


async def no_empty_arrays(peer: Peer) -> Result:
    """Empty arrays are left out."""
    reply = await peer.handshake(_offer(peer.protocol.name, {"action": _READ, "supports": ["x"]}))
    text = "".join(one.text for one in reply.remarks if one.status == HANDSHAKE_STATUS)
    try:
        has_empty = _has_empty(json.loads(text))
    except (ValueError, RecursionError):
        return failed("the warning's text is not the JSON of a handshake")
    return failed("an empty array is written") if has_empty else PASSED


def _has_empty(value: object) -> bool:
    if isinstance(value, list):
        return not value or any(map(_has_empty, value))
    return isinstance(value, dict) and any(map(_has_empty, value.values()))


async def escaped(peer: Peer) -> Result:
    """JSON that is escaped twice, as some clients send it."""
    sent = html.escape(_offer(peer.protocol.name, {"action": _READ}))
    try:
        common = await _shake(peer, sent)
    except CheckFailed as wrong:
        return warning(f"escaped JSON is not read: {wrong}")
    return PASSED if _READ in common.get(peer.protocol.name, {}) else failed("it was misread")


async def no_json(peer: Peer) -> Result:
    """EchoData that is no JSON: an error that says so, and no failure of the server."""
    answer = await peer.call(HANDSHAKE, message.ping("no JSON at all"))
    if answer.status == 400:
        return PASSED
    reply = peer.read(answer, "OTA_PingRS")
    if reply.outcome != "error":
        return failed(f"HTTP {answer.status}, outcome {reply.outcome}: an error is due")
    return failed(f"it breaks the schema: {reply.invalid}") if reply.invalid else PASSED


async def unknown_version(peer: Peer) -> Result:
    """The header names a version that there is not: the handshake is how a client finds out."""
    headers = {"X-AlpineBits-ClientProtocolVersion": NO_VERSION}
    answer = await peer.call(HANDSHAKE, message.ping(offer()), headers)
    try:
        _common(peer.read(answer, "OTA_PingRS"))
    except CheckFailed as wrong:
        return failed(f"a handshake is answered in any version: {wrong}")
    return PASSED


async def ping_listed(peer: Peer) -> Result:
    """action_OTA_Ping is listed up to 2022-10, and not listed from 2024-10 on."""
    common = await _shake(peer, _offer(peer.protocol.name, {"action": _PING}))
    listed = _PING in common.get(peer.protocol.name, {})
    if listed == (peer.protocol.year <= 2022):
        return PASSED
    return failed(f"{_PING} is {'listed' if listed else 'not listed'} in {peer.protocol.name}")


async def get_version(peer: Peer) -> Result:
    """getVersion answers OK: and the version."""
    answer = await peer.call("getVersion")
    due = f"OK:{peer.protocol.name}"
    return PASSED if answer.body.strip() == due.encode() else failed(f"the body is not {due}")


async def get_capabilities(peer: Peer) -> Result:
    """getCapabilities answers OK: and a list with both housekeeping actions."""
    answer = await peer.call("getCapabilities")
    text = answer.body.decode("utf-8", "replace").strip()
    if answer.status != 200 or not text.startswith("OK:"):
        return failed(f"HTTP {answer.status}, the body does not begin with OK:")
    names = {name.strip() for name in text.removeprefix("OK:").split(",")}
    missing = {"action_getVersion", "action_getCapabilities"} - names
    return failed(f"{', '.join(sorted(missing))} missing") if missing else PASSED


CHECKS = (
    Check("handshake.get-version", "getVersion: OK:2017-10", get_version, True, until=2017),
    Check(
        "handshake.get-capabilities", "getCapabilities: OK: and a list", get_capabilities, True,
        until=2017,
    ),
    Check("handshake.form", "form of the answer", form_of_answer, True, since=2018),
    Check("handshake.echo", "EchoData as it was sent", echo, since=2018),
    Check("handshake.unknown", "unknown names are left out", nothing_unknown, True, since=2018),
    Check("handshake.offered", "nothing beyond the offer", nothing_not_offered, True, since=2018),
    Check("handshake.announced", "announced actions are supported", announced, True, since=2018),
    Check("handshake.empty", "empty arrays are left out", no_empty_arrays, since=2018),
    Check("handshake.escaped", "escaped JSON is read", escaped, since=2018),
    Check("handshake.no-json", "EchoData without JSON: an error", no_json, True, since=2018),
    Check("handshake.any-version", "answered in any version", unknown_version, since=2018),
    Check("handshake.ping", "OTA_Ping listed until 2022-10", ping_listed, True, since=2018),
)  # fmt: skip
