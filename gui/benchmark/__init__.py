"""The Benchmark tab: a page for each kind of benchmark. Main thread only."""
