"""The plots over time: metrics, memory parts, throughput, and the slots they are chosen in. Main thread only."""
