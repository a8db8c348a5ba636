"""The all-reduce benchmark: `run` in the engine, `ranks` starts the processes, `rank` is one of them. No torch here."""
