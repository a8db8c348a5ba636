"""The page Model steps of the Benchmark tab. Main thread only."""
