"""Guest requests brought to hotel software that does not come for them."""
