"""A recording in place of a live session: the window winds it to any moment. Main thread; no Qt, no torch."""
