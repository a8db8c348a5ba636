"""Tells which code of the user will run, runs it in its own process, and finds out which line is the user's. Any
thread; no torch."""
