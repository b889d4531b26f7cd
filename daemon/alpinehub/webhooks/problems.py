"""The next step of an operator for a submission in review, by its problems.

A problem says what is wrong with which field: `missing:arrival`, `past:arrival`. One without a
field, such as `not_json`, is of the whole submission.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: The submission cannot be interpreted or stored because of an error of the hub.
HUB_ERROR = "hub_error"
#: The stored mapping of the source is damaged.
MAPPING_UNREADABLE = "mapping_unreadable"
#: What `alpinehub inbox accept` accepts.
PAST, TOO_LONG = "past:arrival", "too_long:departure"
_UNSAFE = re.compile(r"[^\w@%+=:,./-]")


def shell_word(text: str) -> str:
    """A text of printable characters as one word of a shell command, without quotation marks: mails
    of alerts leave out what is quoted.
    """
    return _UNSAFE.sub(r"\\\g<0>", text)


def next_step(problems: Sequence[str], *, hotel: str, source: str, id_: str) -> str:
    """What to do about a submission with these problems: a sentence with commands to copy.

    `id_`: its number, or `ID` if it is not known.
    """
    of_source = f"{shell_word(hotel)} {shell_word(source)}"
    reject = f"`alpinehub inbox reject {id_} --reason TEXT`"
    if HUB_ERROR in problems:
        return (
            "the log of the worker has the error; when the hub is corrected, `alpinehub inbox"
            f" reprocess {id_}`"
        )
    if MAPPING_UNREADABLE in problems:
        return f"`alpinehub inbox map {of_source}` says what is wrong with the mapping"
    if not any(":" in one for one in problems):
        return (
            "no mapping can help: the hub cannot read what was sent as a submission of this kind;"
            f" see `alpinehub inbox show {id_} --body`, correct the form or ask its author to, and"
            f" take it off the list with {reject}"
        )
    if {*problems} <= {PAST, TOO_LONG}:
        return f"pass it on as it is: `alpinehub inbox accept {id_}`; or refuse it: {reject}"
    return (
        f"see its fields with `alpinehub inbox show {id_}`, try a mapping with `alpinehub inbox map"
        f" {of_source} --field TARGET=PLACE --try {id_}`, save it without --try, then `alpinehub"
        f" inbox reprocess {id_}`; or refuse it: {reject}"
    )
