"""A session recorded to a file and read back: the format, the writer, the reader. No Qt, no torch."""
