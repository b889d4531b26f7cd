r"""The inbox of Wix, Google Ads and forms: rows become reservations, are rejected, or are reviewed.

received --> mapped (new, changed, duplicate)
   |     \-> rejected (test, spam; by hand)
   \--> review --mapping corrected, reprocess--> mapped
"""
