r"""The inbox of Wix, Google Ads and forms: rows become reservations, or are set aside, or reviewed.

received --> mapped (new, changed, duplicate)
   |     \-> rejected (test, spam; by hand)
   \--> review --mapping mended, reprocess--> mapped
"""
