"""Conditions on devices that last too long: the rules, what they find, what is said of it."""
