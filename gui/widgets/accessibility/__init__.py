"""For the keyboard and for screen readers; needs no other widget. Main thread."""
