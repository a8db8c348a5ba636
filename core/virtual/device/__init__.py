"""One virtual GPU without torch operators: memory, clock, identity, streams, and whose storage is counted where. Any
thread."""
