"""What one form says of one thing: by the mapping's words, else its default; the rest is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, tzinfo
from typing import TypeVar

from alpinehub.webhooks.field_names import plain
from alpinehub.webhooks.fields import Fields, title
from alpinehub.webhooks.mapping import Mapping
from alpinehub.webhooks.values import line

T = TypeVar("T")


class Asking:
    """One submission, asked for one target after the other."""

    def __init__(
        self, fields: Fields, mapping: Mapping, zone: tzinfo, today: date | None = None
    ) -> None:
        self.fields = fields
        self.mapping = mapping
        #: `missing:arrival`, `unreadable:adults`: why there is no record.
        self.problems: list[str] = []
        self._extra: list[str] = []
        #: The hotel's.
        self.zone = zone
        #: The day on which it came, at the hotel; None: not known.
        self.today = today
        #: The guest's language as the form or the CRM has it: `en-US`, `Deutsch`.
        self.language = self.told("language")
        #: The number of adults is a default: the form was not understood to ask for it.
        self.adults_assumed = False

    def said(self, target: str) -> str:
        """What the form says; "" for nothing."""
        text = self.fields.take(target)
        words = self.mapping.values.get(target)
        if text and words:
            known = {plain(word): meant for word, meant in words.items() if word != "*"}
            text = known.get(plain(text), words.get("*", text))
        return text.strip()

    def told(self, target: str) -> str:
        """What the form says, else what counts where it says nothing."""
        return self.said(target) or self.mapping.defaults.get(target, "").strip()

    def maybe(self, target: str, read: Callable[[str], T | None], otherwise: T) -> T:
        """What no reservation needs: kept as written where it cannot be read."""
        return self.maybe_of(target, self.told(target), read, otherwise)

    def maybe_of(self, target: str, text: str, read: Callable[[str], T | None], otherwise: T) -> T:
        """As `maybe`, of a text that was asked for before."""
        if not text:
            return otherwise
        value = read(text)
        if value is None:
            self.keep(target, text)
            return otherwise
        return value

    def short(self, target: str, most: int) -> str:
        """A line of so many characters; a longer one is kept whole beside it."""
        text = line(self.told(target))
        if len(text) <= most:
            return text
        self.keep(target, text)
        return text[:most].rstrip()

    def keep(self, target: str, text: str) -> None:
        """Have the hotel see it as it was written."""
        self._extra.append(f"{self.fields.titles.get(target) or target}: {line(text)}")

    def rest(self) -> str:
        """What was kept, and what nothing was asked for; a line each."""
        self.fields.take("privacy")
        left = [f"{title(answer) or '-'}: {line(answer.value)}" for answer in self.fields.left()]
        return "\n".join((*self._extra, *left))
