"""Each sample gets the outcome that its name says, in each version that has it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import NAMESPACE, Hub, open_hub

from alpinehub.alpinebits.action import ACTIONS as SERVED
from alpinehub.alpinebits.document import parse
from alpinehub.alpinebits.grammar import check
from alpinehub.alpinebits.protocol import PROTOCOLS

ACTIONS = {
    "OTA_HotelAvailNotifRQ": "OTA_HotelAvailNotif:FreeRooms",
    "OTA_HotelInvCountNotifRQ": "OTA_HotelInvCountNotif:FreeRooms",
    "OTA_HotelDescriptiveContentNotifRQ": "OTA_HotelDescriptiveContentNotif:Inventory",
    "OTA_HotelDescriptiveInfoRQ": "OTA_HotelDescriptiveInfo:Inventory",
    "OTA_HotelRatePlanNotifRQ": "OTA_HotelRatePlanNotif:RatePlans",
    "OTA_HotelRatePlanRQ": "OTA_HotelRatePlan:BaseRates",
    "OTA_HotelPostEventNotifRQ": "OTA_HotelPostEventNotif:EventReports",
    "OTA_ReadRQ": "OTA_Read:GuestRequests",
    "OTA_NotifReportRQ": "OTA_NotifReport:GuestRequests",
    "OTA_HotelResNotifRQ": "OTA_HotelResNotif:GuestRequests",
    "OTA_PingRQ": "OTA_Ping:Handshaking",
}
FREE_ROOMS = ("OTA_HotelAvailNotif:FreeRooms", "OTA_HotelInvCountNotif:FreeRooms")
#: Of names that hold this word, another one. What a sample calls hotel info with a room type is
#: an inventory by what it says, and called so in 2020-10.
OTHER_ACTIONS = {
    "roomtype": "OTA_HotelDescriptiveContentNotif:Inventory",
    "NotifRQ-hotelinfo": "OTA_HotelDescriptiveContentNotif:Info",
    "NotifRQ_HotelInfo": "OTA_HotelDescriptiveContentNotif:Info",
    "InfoRQ-hotelinfo": "OTA_HotelDescriptiveInfo:Info",
    "StatusUpdate": "OTA_HotelResNotif:GuestRequests_StatusUpdate",
}
#: The versions that take what a folder of rules/ shows.
VERSIONS = {
    "2018-10": ("2017-10", "2018-10"),
    "2024-10": ("2020-10", "2022-10", "2024-10"),
}
TAKEN = ("success", "advisory")
SAID = ("success", "advisory", "warning", "error")
REFUSED = ("error",)
BROKEN = ("400",)


class Case(NamedTuple):
    """A sample in a version."""

    path: Path
    version: str

    @property
    def name(self) -> str:
        return material.name_of(self.path)

    def __str__(self) -> str:
        return f"{self.name}-{self.version}"


def rules(folder: str, names: str = "*") -> list[Case]:
    return [
        Case(path, version)
        for path in material.samples(f"rules/*/{folder}/{names}.xml")
        for version in VERSIONS[path.parent.parent.name]
    ]


def messages(kind: str) -> list[Case]:
    paths = material.samples(f"messages/*/*{kind}*.xml")
    return [Case(path, path.parent.name) for path in paths]


def expected(case: Case) -> tuple[str, ...]:
    """By the name of the file, but for what a version says of it otherwise."""
    protocol = PROTOCOLS[case.version]
    known = {one.name for one in SERVED if one.is_in(protocol)}
    if "RQ" in case.name and action_of(case) not in known:
        return BROKEN  # an action that is not served
    for end, versions, outcomes in OTHERWISE:
        if case.name.endswith(end) and case.version in versions:
            return outcomes
    name = case.path.name
    return REFUSED if "_err" in name or "-err-" in name else TAKEN


_BEFORE_2024 = ("2020-10", "2022-10")
#: Where the schema refuses already what is wrong, or only a later version has the rule.
OTHERWISE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    # In 2017-10 nothing is agreed upon: it may be left out, and is then 0. In 2018-10 the message
    # is that of two other files, which are a success: an error only where the threshold was agreed
    # upon (`test_threshold_is_told_when_it_was_agreed_upon`).
    ("HotelAvailNotifRQ_err_bookingthreshold-not-null", ("2017-10",), TAKEN),
    ("HotelAvailNotifRQ_err_bookingthreshold-null", ("2017-10", "2018-10"), TAKEN),
    ("2024-10/freerooms/HotelAvailNotifRQ_err_no-hotelcode", VERSIONS["2024-10"], BROKEN),
    ("Basic-err-info-code-1-descriptions-empty", tuple(PROTOCOLS), BROKEN),
    ("Basic-err-info-code-25-descriptions-empty", tuple(PROTOCOLS), BROKEN),
    ("Basic-err-no-hotelcode", ("2024-10",), BROKEN),
    ("Basic-err-with-affiliationinfo", VERSIONS["2024-10"], BROKEN),
    ("Basic-err-with-policies", VERSIONS["2024-10"], BROKEN),
    ("HotelInfo-err-service-code-invalid", VERSIONS["2024-10"], BROKEN),
    ("HotelDescriptiveInfoRS-err-policy-info-check-in-not-allowed", _BEFORE_2024, TAKEN),
    ("HotelDescriptiveInfoRS-err-policy-info-check-out-not-allowed", _BEFORE_2024, TAKEN),
    ("2017-10/GuestRequests-OTA_ReadRQ-invalid", ("2017-10",), BROKEN),
    # It asks for rate plans that nobody has pushed.
    ("BaseRates-OTA_HotelRatePlanRQ", tuple(PROTOCOLS), REFUSED),
    ("HotelInfo-err-type-room-missing", _BEFORE_2024, TAKEN),
    ("HotelInfo-err-type-room-missing", ("2024-10",), BROKEN),
)
#: What responses say beside the outcome in their name.
ANSWERS = {"OTA_PingRS": "advisory", "OTA_HotelResNotifRS": "warning"}


async def add_hotels(hub: Hub) -> None:
    names = {"123": "Frangart Inn", "9996": "Rules", "00001": "TestHotel", "...": "Dots"}
    ids = [await hub.add_hotel(code, name=name) for code, name in names.items()]
    await hub.add_account("pms", *ids)


def action_of(case: Case) -> str:
    for word, action in OTHER_ACTIONS.items():
        if word.lower() in case.path.stem.lower():
            return action
    return ACTIONS[etree.QName(etree.parse(case.path).getroot()).localname]


async def drive(hub: Hub, case: Case) -> str:
    """What comes of a sample: an outcome of OTA, or the status of another answer."""
    answer = await hub.post("pms", action_of(case), case.path.read_bytes(), case.version)
    if answer.status_code != 200:
        assert answer.text.startswith("ERROR:"), answer.text
        return str(answer.status_code)
    assert material.problems(answer.content, case.version) == []
    return outcome(answer.content)


def outcome(document: bytes) -> str:
    """What a response says."""
    root = etree.fromstring(document)
    if root.find(f"{{{NAMESPACE}}}Errors") is not None:
        return "error"
    types = {one.get("Type") for one in root.iter(f"{{{NAMESPACE}}}Warning")}
    if not types:
        return "success"
    return "advisory" if types == {"11"} else "warning"


def test_there_are_samples_or_no_material_at_all() -> None:
    material.need()
    assert len(rules("freerooms")) >= 2 * 17 + 3 * 18
    assert len(rules("inventory")) >= 2 * 47 + 3 * 50
    every = len(material.samples("messages/*/*.xml"))
    assert len(messages("RQ")) + len(messages("RS")) == every


each = pytest.mark.parametrize


@pytest.mark.usefixtures("each_store")
@each("cases", [rules("freerooms"), rules("inventory", "*NotifRQ*")], ids=["rooms", "inventory"])
async def test_rules_have_the_outcome_of_their_name(tmp_path: Path, cases: list[Case]) -> None:
    """What is refused leaves nothing behind but the record of a push of a known hotel."""
    wrong = []
    async with open_hub(tmp_path) as hub:
        await add_hotels(hub)
        for case in cases:
            for table in ("hotel_document", "inbound_message"):
                await hub.execute(f"DELETE FROM {table}")
            result = await drive(hub, case)
            stored = await hub.one("SELECT count(*) FROM hotel_document")
            pushes = [row["outcome"] for row in await hub.execute("SELECT * FROM inbound_message")]
            right = result in expected(case) and stored == (result in TAKEN)
            if not right or pushes not in ([result], []):
                wrong.append(f"{case}: {result}, {stored} stored, {pushes}")
    assert wrong == []


@pytest.mark.usefixtures("each_store")
async def test_messages_are_taken_one_after_the_other(tmp_path: Path) -> None:
    wrong = []
    async with open_hub(tmp_path) as hub:
        await add_hotels(hub)
        for case in messages("RQ"):
            if action_of(case) in FREE_ROOMS and b"CompleteSet" not in case.path.read_bytes():
                # A delta of the other kind than what is known is refused.
                await hub.execute("DELETE FROM hotel_document WHERE kind = 'freerooms'")
            if (result := await drive(hub, case)) not in expected(case):
                wrong.append(f"{case}: {result}")
    assert wrong == []


@each("case", rules("inventory", "*InfoRS*"), ids=str)
def test_rule_of_a_response_is_what_the_schema_says(case: Case) -> None:
    """We only write it, and nothing is written that does not conform."""
    problem = check(parse(case.path.read_bytes()), PROTOCOLS[case.version])
    assert (problem is None) == (expected(case) == TAKEN)


@each("case", messages("RS"), ids=str)
def test_response_says_what_its_name_says(case: Case) -> None:
    document = case.path.read_bytes()
    assert check(parse(document), PROTOCOLS[case.version]) is None
    said = case.path.stem.rpartition("-")[2]
    root = etree.QName(etree.fromstring(document)).localname
    assert outcome(document) == (said if said in SAID else ANSWERS.get(root, "success"))
