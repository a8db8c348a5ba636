"""Panels, tabs and dialogs. Each reads the state and speaks in signals; none knows another. Main thread only."""
