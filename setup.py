"""Names the packages to install: each folder below `core`, `gui` and `resources` goes below the one name `devexplorer`.

They are mapped rather than moved so that no user's own `core` or `gui` is shadowed, and listed here because setuptools'
own discovery has no setting for a name above what it finds. Everything else about the project stands in pyproject.toml.
"""

from setuptools import find_packages, setup

FOLDERS = ("core", "gui", "resources")

found = find_packages(
    include=[pattern for folder in FOLDERS for pattern in (folder, f"{folder}.*")], exclude=["core.public"]
)
setup(
    packages=["devexplorer", *(f"devexplorer.{name}" for name in found)],
    package_dir={"devexplorer": "core/public", **{f"devexplorer.{folder}": folder for folder in FOLDERS}},
)
