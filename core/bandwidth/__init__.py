"""Bandwidth: copies between and within devices."""
