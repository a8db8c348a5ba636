"""The Doctor tab. Main thread only."""
