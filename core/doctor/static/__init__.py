"""Rules that look at the model itself: what it holds and how that stands after a move. The main thread of its own
process."""
