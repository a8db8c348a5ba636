"""Pictures of measured values that are not over time: heat map, curves over a size, bars. Main thread only."""
