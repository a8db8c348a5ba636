"""The history of benchmark runs and their comparison. Main thread only."""
