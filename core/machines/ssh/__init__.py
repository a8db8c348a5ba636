"""Other machines over the user's own ssh: a connection is one child process, with nothing installed at the far end."""
