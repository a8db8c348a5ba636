"""What can be asked of the engine: each command's handler, its title, its messages, and the one dispatcher. Jobs
thread."""
