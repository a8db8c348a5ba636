"""Named live tensors and models: what is where, and what can be done with it. Runs on the jobs thread of the engine."""
