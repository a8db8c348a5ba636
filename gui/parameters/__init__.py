"""The Values tab, and the actions on parameters and training. Main thread only."""
