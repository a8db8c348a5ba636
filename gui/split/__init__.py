"""The Split tab. Main thread only."""
