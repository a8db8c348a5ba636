"""Charts of results that are not over time: size curves, rooflines, bars. They are in `gui/charts`."""
