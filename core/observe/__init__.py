"""Scripts of the user's, run as they are and observed."""
