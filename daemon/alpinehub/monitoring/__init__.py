"""What nobody would notice by itself: hotel software that does not come."""
