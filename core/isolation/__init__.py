"""Runs something in a process of its own, and finds out which line is the user's. Any thread; no torch."""
