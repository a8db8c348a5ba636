"""Where searches of the planner end. Plain numbers; no torch; any thread."""

LARGEST_BATCH = 1 << 16
"""No larger batch is looked for."""
LONGEST_CONTEXT = 1 << 24
"""Tokens; no longer one is looked for."""
ONE_GPU = "a Mac has one GPU; plan for '{}' alone"
