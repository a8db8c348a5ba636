"""Virtual GPUs apart from operators: memory, clock, identity, streams, accounting of storages. Any thread."""
