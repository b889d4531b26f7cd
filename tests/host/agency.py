"""The hub as an agency has it: two hotels, their forms, their software; and what all of it did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from email import message_from_string
from email.header import decode_header, make_header
from email.message import Message
from typing import Any, NamedTuple

from tests.host.load import Load
from tests.host.machine import CHECKOUT, Host, wait_for
from tests.host.mail import PostOffice
from tests.host.package import KEEP, install
from tests.host.proxy import start_proxy

URL = "http://127.0.0.1:8080"
PROXY = "https://localhost"
STORE = "/var/lib/cordata/cordata.db"
STAMP = "/var/lib/systemd/timers/stamp-daily-report.timer"
#: What hotel software was brought.
_BROUGHT = "/var/lib/brought.json"
_PUSH_PORT = 9090
#: Of every guest and every secret; no journal, log or alert may hold one of them.
PLANTED = ("Zaphod", "Beeblebrox", "private.example", "7654321", "planted")
GUEST = {
    "first_name": "Zaphod",
    "last_name": "Beeblebrox",
    "email": "zaphod@private.example",
    "phone": "+39 333 7654321",
    "message": "Zaphod wants <b>two</b> pillows",
}
_STAY = {"arrival": "2027-02-01", "departure": "2027-02-08", "adults": 2}
SETTINGS = """
[app]
import = "alpinehub.app:app"
[alert]
to = ["admin@example.com"]
count = 1
max_per_hour = 1000
[http]
header_timeout_s = 3.0
body_timeout_s = 3.0
[alpinehub]
portfolio_to = ["agency@example.com"]
portfolio_language = "en"
push_private = true
"""


class User(NamedTuple):
    """Hotel software."""

    name: str
    hotel: str
    version: str
    url: str = URL


class Source(NamedTuple):
    """Where leads come from."""

    name: str
    hotel: str
    kind: str

    @property
    def secret(self) -> str:
        """Long enough to stand in a path."""
        return f"planted-{self.name}-0123456789"


PMS = User("berghof-pms", "BERGHOF", "2018-10")
CRM = User("berghof-crm", "BERGHOF", "2024-10", PROXY)
LAGO = User("lago-pms", "LAGO", "2022-10")
#: Does not poll: it is brought what comes.
BROUGHT = User("lago-rms", "LAGO", "2020-10")
USERS = (PMS, CRM, LAGO, BROUGHT)
WIX = Source("homepage", "BERGHOF", "wix")
ADS = Source("ads", "BERGHOF", "google")
FORM = Source("contact", "LAGO", "form")
SHOP = Source("shop", "LAGO", "generic")
SOURCES = (WIX, ADS, FORM, SHOP)


def wix(number: str, **fields: str) -> dict[str, Any]:
    """What a form of Wix sends."""
    data = {
        "formId": "form-1",
        "submissionId": number,
        "field:first_name_abae": GUEST["first_name"],
        "field:last_name_12f0": GUEST["last_name"],
        "field:email_5139": GUEST["email"],
        "field:long_answer_3524": GUEST["message"],
        "field:number_7cf5": "2",
        "submissions": [{"label": "Erwachsene", "value": "2"}],
        **fields,
    }
    return {"data": data}


#: The form's dates.
WHEN = {"field:anreise": "01.02.2127", "field:abreise": "08.02.2127"}
#: The same after somebody rebuilt the form.
REBUILT = {"field:first_day_7": "01.02.2127", "field:last_day_8": "08.02.2127"}
_LEADS: dict[Source, dict[str, Any]] = {
    WIX: wix("{n}", **WHEN),
    ADS: {
        "lead_id": "{n}",
        "google_key": ADS.secret,
        "user_column_data": [
            {"column_id": "FULL_NAME", "string_value": "Zaphod Beeblebrox"},
            {"column_id": "EMAIL", "string_value": GUEST["email"]},
        ],
    },
    SHOP: {"hotel_code": "LAGO", "status": "request", "external_id": "{n}", **_STAY, **GUEST},
}


@dataclass(frozen=True, slots=True)
class Agency:
    """The host, and where its mails go."""

    host: Host
    post_office: PostOffice

    def set_up(self) -> None:
        """The packages with their hotels, behind nginx; nobody has sent anything yet."""
        host = self.host
        self.post_office.start()
        host.run("mkdir", "-p", "/etc/cordata")
        settings = self.post_office.settings + SETTINGS
        host.run("sh", "-c", "cat >/etc/cordata/cordata.toml", stdin=settings)
        host.run("rm", "-f", "/var/lib/man-db/auto-update")  # takes longer than all the rest
        install(host, "", *KEEP)
        self.alpinehub("hotel", "add", "BERGHOF", "--name", "Hotel Berghof")
        self.alpinehub("hotel", "add", "LAGO", "--name", "Albergo Lago", "--language", "it")
        for code in ("BERGHOF", "LAGO"):
            to = f"{code.lower()}@example.com"
            self.alpinehub("hotel", "set", code, "--report-email", to, "--alert-email", to)
        for user in USERS:
            words = ("account", "add", user.name, "--hotel", user.hotel, "--password-stdin")
            self.alpinehub(*words, stdin=f"planted-{user.name}")
        for source in SOURCES:
            words = ("source", "add", source.hotel, source.name, "--kind", source.kind)
            self.alpinehub(*words, "--secret-stdin", stdin=source.secret)
        start_proxy(host)

    def have_it_brought(self) -> None:
        """To the software that does not poll, from now on."""
        script = (CHECKOUT / "tests/host/hotel_server.py").read_text()
        self.host.run("sh", "-c", "cat >/var/lib/hotel_server.py", stdin=script)
        server = ["python3", "/var/lib/hotel_server.py", _PUSH_PORT, _BROUGHT]
        self.host.run("systemd-run", "-q", "--unit=hotel-server", *server)
        to = f"http://127.0.0.1:{_PUSH_PORT}/alpinebits"
        words = ("account", "push", "set", BROUGHT.name, "--url", to, "--login", "hub")
        self.alpinehub(*words, "--version", BROUGHT.version, stdin="planted-push-password")

    def alpinehub(
        self, *words: object, stdin: str | None = None, secret: str = "", check: bool = True
    ) -> str:
        """What a command prints; `secret` is the one of a source, or a password."""
        known = [f"ALPINEHUB_SECRET={secret}", f"ALPINEHUB_PASSWORD={secret}"]
        return self.host.run("env", *known, "alpinehub", *words, stdin=stdin, check=check).stdout

    def pms(self, command: str, user: User, *words: object) -> list[Any]:
        """`alpinehub pms`: each answer."""
        server = ["--url", f"{user.url}/api/alpinebits", "--user", user.name, "--insecure"]
        server += ["--version", user.version, "--json", *map(str, words)]
        said = self.alpinehub("pms", command, *server, secret=f"planted-{user.name}")
        return [json.loads(line) for line in said.splitlines()]

    def poll(self, user: User, *words: str) -> list[str]:
        """The ids of what waits for a user."""
        answers = self.pms("poll", user, "--hotel", user.hotel, *words)
        assert all(answer["outcome"] == "success" for answer in answers), answers
        return [one["id"] for one in answers[0]["requests"]]

    def leads(self, source: Source) -> Load:
        """Leads of a source that keep coming, each with a number, each until it was taken."""
        path = f"/api/webhook/{source.kind}"
        if source.kind == "wix":
            path += f"/{source.hotel}/{source.secret}"
        headers = {"X-Webhook-Secret": source.secret} if source.kind == "generic" else {}
        body = json.dumps(_LEADS[source])
        return Load(
            self.host,
            path=path,
            headers=headers,
            body=body,
            again=True,
            connections=2,
            pause_s=0.1,
        )

    def rows(self, sql: str) -> list[list[str]]:
        """Rows of the store."""
        text = self.host.run("sqlite3", "-readonly", "-json", STORE, f"{sql};").stdout
        return [[str(value) for value in row.values()] for row in json.loads(text or "[]")]

    def number(self, sql: str) -> int:
        """The one number that a query gives."""
        return int(self.rows(sql)[0][0])

    def settle(self) -> None:
        """Wait until every event was handled, and everything brought that is to be."""
        left = (
            "SELECT (SELECT count(*) FROM message)"
            " + (SELECT count(*) FROM delivery d JOIN account u ON u.id = d.account_id"
            f" WHERE d.waiting = 1 AND u.name = '{BROUGHT.name}')"
        )
        wait_for(lambda: self.number(left) == 0, timeout_s=60, what="the last event")

    def brought(self) -> list[str]:
        """The ids that came to the software that does not poll, in order."""
        lines = self.host.sh(f"cat {_BROUGHT} 2>/dev/null || :").splitlines()
        return [unique_id for line in lines for unique_id in json.loads(line)]

    def mails(self, to: str, *words: str) -> list[Message]:
        """Those to an address with all these words in subject or text."""
        messages = [
            message_from_string(mail["text"])
            for mail in self.post_office.mails()
            if mail["to"] == [to]
        ]
        return [message for message in messages if holds(message, words)]

    def wait_for_mail(self, to: str, *words: str) -> Message:
        """The mail, once it came."""
        wait_for(lambda: self.mails(to, *words), what=f"mail to {to}: {words}")
        return self.mails(to, *words)[0]


def part(message: Message, kind: str) -> str:
    """The text of the first part of a type; "": there is none."""
    for one in message.walk():
        if one.get_content_type() == kind:
            payload = one.get_payload(decode=True)
            assert isinstance(payload, bytes)
            return payload.decode("utf-8", "replace")
    return ""


def holds(message: Message, words: Iterable[str]) -> bool:
    """Whether a mail says all of this."""
    text = f"{make_header(decode_header(message['Subject']))}\n{part(message, 'text/plain')}"
    return all(word in " ".join(text.split()) for word in words)
