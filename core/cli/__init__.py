"""The command line: every command that needs no window. Runs on the main thread of its process."""
