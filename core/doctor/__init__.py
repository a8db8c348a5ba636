"""The placement doctor: which line puts a tensor on the wrong device? Examines a model in a process of its own; no
thread here."""
