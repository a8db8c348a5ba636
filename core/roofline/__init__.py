"""Roofline: runs against what a card's datasheet promises; its page is in `gui/roofline`."""
