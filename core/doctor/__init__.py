"""The placement doctor: which line puts a tensor on the wrong device? Examines a model in its own process; no
thread here."""
