"""Other machines: their hosts, the ways there, and what a window has of them."""
