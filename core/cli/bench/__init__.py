"""`devexplorer bench`. Main thread of its process."""
