r"""The inbox of the lenient sources: every row becomes a reservation, is set aside, or is reviewed.

received --> mapped (new, changed, duplicate)
   |     \-> rejected (test, spam; by hand)
   \--> review --mapping mended, reprocess--> mapped
"""

from alpinehub.inbox.processing import interpret, take_up

__all__ = ["interpret", "take_up"]
