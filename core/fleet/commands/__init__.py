"""`devexplorer fleet`. Main thread of its process; torch is not imported."""
