"""What an operator does to alerts and mails, by command or on the status page."""

from __future__ import annotations

from collections.abc import Sequence

from cordata.store import MAIL_TOPIC, Tx


async def clear_alerts(tx: Tx, fingerprints: Sequence[str]) -> list[str]:
    """Delete alerts with their counts and unsent reports. Returns those that do not exist."""
    return [one for one in fingerprints if not await tx.execute("alert.clear", fingerprint=one)]


async def retry_mails(tx: Tx, numbers: Sequence[int]) -> list[int]:
    """Let the primary send mails again now. Returns those that are neither pending nor failed."""
    tx.notify(MAIL_TOPIC)
    return [one for one in numbers if not await tx.execute("mail.retry", id=one, now_us=tx.now_us)]
