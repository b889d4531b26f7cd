"""The daily report: the figures of a hotel's day, mailed once, on the next morning."""
