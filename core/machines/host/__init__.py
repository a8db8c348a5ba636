"""The session of a machine behind a link: what runs where the window does not."""
