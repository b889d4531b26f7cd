r"""The inbox of the lenient sources: every row becomes a reservation, is set aside, or is reviewed.

received --> mapped (new, changed, duplicate)
   |     \-> rejected (test, spam; by hand)
   \--> review --mapping mended, reprocess--> mapped
"""

from alpinehub.inbox.processing import process_event, process_stale

__all__ = ["process_event", "process_stale"]
