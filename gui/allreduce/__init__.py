"""The page All-reduce of the Benchmark tab. Main thread only."""
