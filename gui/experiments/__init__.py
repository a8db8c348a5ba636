"""The Experiments tab. Main thread only."""
