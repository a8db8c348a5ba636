"""The Fit tab. Main thread only."""
