"""Which Python the engine runs in. Main thread only."""
