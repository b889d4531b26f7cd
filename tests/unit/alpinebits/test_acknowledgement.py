"""Which guest requests an acknowledgement accepts, and which it rejects."""

from __future__ import annotations

from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import read_here
from alpinehub.alpinebits.rules.acknowledgement import REPORT, Acknowledgement

DOCUMENT = f"""<OTA_NotifReportRQ xmlns="{NAMESPACE}" Version="1.000"><Success/><Warnings>
<Warning Type="3" Code="450" RecordID="bad">Room  type
 unknown</Warning>
<Warning Type="3" Code="450" RecordID="taken">but taken all the same</Warning>
<Warning Type="11" Code="450" RecordID="advice">only advice</Warning>
<Warning Type="3" Code="99" RecordID="other">another code</Warning>
<Warning Type=" 03 " Code="0450" RecordID="odd"/>
</Warnings><NotifDetails><HotelNotifReport><HotelReservations>
<HotelReservation><UniqueID Type="14" ID="taken"/></HotelReservation>
<HotelReservation><UniqueID Type="15" ID="gone"/></HotelReservation>
</HotelReservations></HotelNotifReport></NotifDetails></OTA_NotifReportRQ>"""


def test_acknowledgement_rejects_by_one_kind_of_warning_and_only_what_it_does_not_accept() -> None:
    assert read_here(DOCUMENT.encode(), PROTOCOLS["2024-10"], REPORT) == Acknowledgement(
        accepted=(("14", "taken"), ("15", "gone")),
        rejected={"bad": "Room type unknown", "odd": ""},
    )
