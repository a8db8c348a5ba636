"""The page Bandwidth of the Benchmark tab. Main thread only."""
