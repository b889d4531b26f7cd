"""The grammars take what the schemas take, and nothing else: samples, and mutants of each."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.mutants import mutants
from tests.integration.alpinebits.shape import XS, places_of_grammar, places_of_schema
from tests.integration.alpinebits.specimen import specimen

from alpinehub.alpinebits.grammar import check, parse, schema
from alpinehub.alpinebits.grammar.notation import DATATYPES
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.transport_error import TransportError

#: Of each sample; more with `make fuzz`-like patience: this many take a second for all.
MUTANTS = 12
SAMPLES = material.samples("messages/*/*.xml", "rules/*/*/*.xml")
each_sample = pytest.mark.parametrize("path", SAMPLES, ids=material.name_of)


def agree(element: etree._Element, name: str) -> bool:
    """Whether it is valid; ours and theirs must say the same."""
    ours = check(element, PROTOCOLS[name])
    theirs = material.schema(name)
    valid = theirs.validate(element)
    assert (ours is None) == valid, (
        f"{name}: we say {ours}, the schema {theirs.error_log}\n{etree.tostring(element).decode()}"
    )
    return valid


def test_there_are_samples_or_no_material_at_all() -> None:
    material.need()
    assert len(SAMPLES) > 150


@each_sample
def test_sample_is_valid_exactly_where_the_schema_says_so(path: Path) -> None:
    element = etree.fromstring(path.read_bytes(), etree.XMLParser(remove_comments=True))
    valid = [name for name in PROTOCOLS if agree(element, name)]
    if path.parent.parent.name == "messages" and "invalid" not in path.name:
        assert path.parent.name in valid


@each_sample
def test_mutants_are_valid_exactly_where_the_schema_says_so(path: Path) -> None:
    for mutant in mutants(path.read_bytes(), MUTANTS, seed=len(path.name)):
        for name in PROTOCOLS:
            agree(mutant, name)


#: Every message of every version.
MESSAGES = [
    (name, of)
    for of, protocol in PROTOCOLS.items()
    for name in sorted(schema.grammar())
    if schema.element(name, protocol) is not None
]


@pytest.mark.parametrize("version", PROTOCOLS)
def test_versions_have_the_messages_of_their_schemas(version: str) -> None:
    material.need()
    document = etree.parse(material.OFFICIAL / "schema" / f"alpinebits-{version}.xsd").getroot()
    theirs = {str(one.get("name")) for one in document.findall(f"{XS}element")}
    assert {name for name, of in MESSAGES if of == version} == theirs


@pytest.mark.parametrize(("name", "version"), MESSAGES)
def test_message_has_the_places_that_its_schema_has(name: str, version: str) -> None:
    material.need()
    document = etree.parse(
        material.OFFICIAL / "schema" / f"alpinebits-{version}.xsd",
        etree.XMLParser(remove_comments=True),
    ).getroot()
    root = schema.element(name, PROTOCOLS[version])
    assert root is not None
    assert places_of_grammar(root) == places_of_schema(document, name)


@pytest.mark.parametrize(("name", "version"), MESSAGES)
def test_message_with_everything_in_it_is_valid_and_its_mutants_are_where_theirs_are(
    name: str, version: str
) -> None:
    root = schema.element(name, PROTOCOLS[version])
    assert root is not None
    for choose in range(3):
        whole = specimen(root, choose)
        assert agree(whole, version), etree.tostring(whole)
        for mutant in mutants(etree.tostring(whole), 4 * MUTANTS, seed=choose):
            agree(mutant, version)


def test_mutants_are_of_both_kinds() -> None:
    """Else the test above tests nothing."""
    material.need()
    said = [
        agree(mutant, "2024-10")
        for path in SAMPLES[::7]
        if "2024" in path.parts[-2] + path.parts[-3]
        for mutant in mutants(path.read_bytes(), 10)
    ]
    assert 0.1 < sum(said) / len(said) < 0.9


READ = b"""<OTA_ReadRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1"><ReadRequests>
    <HotelReadRequest%s>%s</HotelReadRequest></ReadRequests>%s</OTA_ReadRQ>"""


@pytest.mark.parametrize(
    ("attributes", "inside", "after", "problem"),
    [
        ("", "", "", "HotelReadRequest/@HotelCode is missing"),
        (' HotelCode=""', "", "", "HotelReadRequest/@HotelCode is not valid"),
        (' HotelCode="1" foo="1"', "", "", "HotelReadRequest/@foo is not allowed"),
        (' HotelCode="1"', "<a/>", "", "a is not allowed here: SelectionCriteria expected"),
        (' HotelCode="1"', "hello", "", "HotelReadRequest holds text where only elements may be"),
        (' HotelCode="1"', '<SelectionCriteria Start="yesterday"/>', "", "@Start is not valid"),
        (
            ' HotelCode="1"',
            '<SelectionCriteria Start="2027-01-01T00:00:00">x</SelectionCriteria>',
            "",
            "SelectionCriteria must be empty",
        ),
        (' HotelCode="1"', "", f"<{'x' * 5000}/>", f"{'x' * 40}… is not allowed here"),
    ],
)
def test_refusal_names_the_place_and_nothing_that_a_client_wrote(
    attributes: str, inside: str, after: str, problem: str
) -> None:
    document = READ % (attributes.encode(), inside.encode(), after.encode())
    with pytest.raises(TransportError) as caught:
        parse(document, PROTOCOLS["2024-10"], "OTA_ReadRQ")
    assert caught.value.status == 400 and problem in caught.value.text
    assert "yesterday" not in caught.value.text and "\n" not in caught.value.text
    assert caught.value.text.startswith("the request does not conform to the schema: ")


@pytest.mark.parametrize("count", [1, 1000], ids=["small", "large"])
@pytest.mark.parametrize("text", ["x", "&lt;" * 70_000], ids=["short", "long"])
def test_message_is_checked_whatever_its_size_and_the_length_of_its_text(
    count: int, text: str
) -> None:
    def problem(attributes: str = "", after: str = "") -> str | None:
        one = f'<HotelReservation><UniqueID Type="14" ID="&amp;{"b" * 20}"/></HotelReservation>'
        inside = f'<Warnings><Warning Type="3" Code="450" RecordID="a">{text}</Warning></Warnings>'
        known = f"<HotelReservations{attributes}>{one * count}</HotelReservations>"
        inside += f"<NotifDetails><HotelNotifReport>{known}</HotelNotifReport></NotifDetails>"
        start = '<OTA_NotifReportRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1">'
        document = f"{start}<Success/>{inside}{after}</OTA_NotifReportRQ>"
        return check(etree.fromstring(document), PROTOCOLS["2024-10"])

    assert problem() is None
    assert problem(' foo="1"') == "HotelReservations/@foo is not allowed"
    assert problem(after="<y/>") == "y is not allowed here"


@pytest.mark.parametrize("code", ["&amp;" * 16, "&amp;#38;" + "a" * 11, "ä" * 16, "&#10;" * 16])
@pytest.mark.parametrize("count", [1, 10_000], ids=["small", "large"])
def test_length_of_a_value_is_that_of_its_characters(code: str, count: int) -> None:
    for more, problem in (("", None), ("a", "Inventories/@HotelCode is not valid")):
        document = (
            '<OTA_HotelInvCountNotifRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="4">'
            f'<Inventories HotelCode="{code}{more}">{"<Inventory/>" * count}</Inventories>'
            "</OTA_HotelInvCountNotifRQ>"
        )
        assert check(etree.fromstring(document), PROTOCOLS["2024-10"]) == problem


def test_message_is_refused_when_the_version_has_none_or_another_was_meant() -> None:
    ping = b'<OTA_PingRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1"/>'
    for document, root, problem in (
        (ping, "OTA_ReadRQ", "OTA_ReadRQ in namespace http"),
        (b"<OTA_PingRQ/>", "OTA_PingRQ", "OTA_PingRQ in namespace http"),
        (ping, "OTA_PingRQ", "AlpineBits 2017-10 has no such message"),
    ):
        with pytest.raises(TransportError, match=problem):
            parse(document, PROTOCOLS["2017-10"], root)


def test_checking_is_right_when_threads_check_the_same_kind_at_once() -> None:
    good = etree.fromstring(READ % (b' HotelCode="1"', b"", b""))
    bad = [etree.fromstring(READ % (b' HotelCode="1" a%d=""' % n, b"", b"")) for n in range(4)]
    wrong: list[str | None] = []

    def run(number: int) -> None:
        for _ in range(200):
            wrong.extend(said for said in [check(good, PROTOCOLS["2024-10"])] if said is not None)
            expected = f"HotelReadRequest/@a{number} is not allowed"
            said = check(bad[number], PROTOCOLS["2024-10"])
            wrong.extend([said] if said != expected else [])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_every_type_and_fragment_of_the_grammars_is_used() -> None:
    text = " ".join(path.read_text() for path in Path(schema.__file__).parent.glob("*.g"))
    words = set(text.replace("{", " ").split())
    assert set(DATATYPES) <= words
    fragments = {name for name, line in schema.grammar().items() if line.is_fragment}
    assert all(f"like {name}" in text for name in fragments)
