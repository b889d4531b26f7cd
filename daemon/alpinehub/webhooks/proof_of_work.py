"""A proof of work in a hidden field of a form: cheap for one guest, dear for a robot.

`_proof` is `SECONDS.SALT.COUNTER`: the SHA-256 of `SECRET.SECONDS.SALT.COUNTER` (SECRET is the last
part of the form's address) begins with as many zero bits as the source's option `proof_of_work`
says. A script of the page finds such a COUNTER (packaging/examples/form.html). Each proof counts
once (form_limit.py).
"""

from __future__ import annotations

import re
from hashlib import sha256

#: The hidden field; its name begins with "_": it is no answer of a guest's.
FIELD = "_proof"
#: A proof counts this long before and after its SECONDS: clocks of guests are wrong.
VALID_S = 86_400
_PROOF = re.compile(r"([0-9]{1,12})\.[A-Za-z0-9_-]{1,64}\.[0-9]{1,16}")


def is_proof(proof: str, secret: str, bits: int, *, now_s: int) -> bool:
    """Whether the work was done, for this form, and lately."""
    match = _PROOF.fullmatch(proof)
    if match is None or abs(int(match[1]) - now_s) > VALID_S:
        return False
    digest = sha256(f"{secret}.{proof}".encode()).digest()
    return int.from_bytes(digest, "big") >> (256 - bits) == 0
