"""The page Fleet: every card of every machine as one grid, and the check that finds the slow one."""
