"""The machines of a window besides this one: each is a session behind a link. Loaded with the first of them."""
