"""The daily report: what a hotel's day brought, mailed once, on the morning after."""
