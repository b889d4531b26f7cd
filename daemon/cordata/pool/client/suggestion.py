"""Did you mean: the known command that is most like an unknown name."""

from __future__ import annotations

from functools import lru_cache

#: Limits of a search: names that are compared, their length and letters that may differ. Comparing
#: two names costs the product of their lengths; within these limits it takes a millisecond or two.
_LONGEST, _MOST, _LETTERS = 40, 50, 2


@lru_cache(maxsize=64)  # a program may call an unknown command all the time
def nearest(name: str, known: tuple[str, ...]) -> str:
    """The known name that is most like `name`; "": none is, or `name` is too long to compare."""
    import difflib  # 3 ms, and only for a mistake

    if len(name) > _LONGEST:
        return ""
    alike = [one for one in known if abs(len(one) - len(name)) <= _LETTERS]
    found = difflib.get_close_matches(name, alike[:_MOST], n=1)
    return found[0] if found else ""
