"""Exercises about features, a module for each, called as its folder of core. Data; main thread."""
