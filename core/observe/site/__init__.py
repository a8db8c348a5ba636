"""The folder that stands first on the path of an observed script."""
