"""`devexplorer watch`. Main thread of its process; torch is not imported."""
