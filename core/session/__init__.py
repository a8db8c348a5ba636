"""What the window talks to: the engine process, the state, jobs, settings, the session as Python. Main thread; no Qt,
no torch."""
