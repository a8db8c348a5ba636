"""Exercises that check themselves: short tasks about devices and placement, done with the window's own means. No torch,
no Qt."""
