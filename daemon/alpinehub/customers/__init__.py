"""Customers, the people who write to hotels: finding, merging, exporting and erasing them."""
