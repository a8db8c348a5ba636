"""Plans for generating text: the key-value cache, prefill and decode, quantised weights, tensor parallelism."""
