"""The page Scaling of the Benchmark tab. Main thread only."""
