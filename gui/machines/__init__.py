"""Machines: connecting to others, the one that is shown, the Python of its engine, the page that lists them. Main
thread only."""
