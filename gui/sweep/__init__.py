"""The page Sweeps of the Benchmark tab. Main thread only."""
