"""Rules that look at the model itself: what it holds and what a move leaves behind. The main thread of the worker
process."""
