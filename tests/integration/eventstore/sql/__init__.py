"""Tables of the test application."""
