"""Which Python environments are on a machine: read from their files, no interpreter is started. Any thread.

Also sent to other machines as text: the standard library only, and syntax of Python 3.6. Nothing in here raises for a
folder that is missing, unreadable or strange; such a folder is passed over.
"""

import glob
import os
import re
import shutil

MOST = 200
"""Environments that are listed; a machine with more has them made by a program."""
FOLDERS_UP = 12
"""Between a model's file and the folder of its project."""
LARGEST_FILE = 1 << 16
"""Of a file that is read for a version."""

CONDA_BASES = (
    "~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "~/micromamba", "~/.local/share/mamba",
    "/opt/conda", "/opt/miniconda3", "/opt/anaconda3", "/opt/miniforge3",
)  # fmt: skip


def find(folder: str, environ: "dict[str, str]") -> "list[dict[str, str]]":
    """The environments that concern somebody who works in `folder`, the most likely first.

    Each: `python`, the interpreter as one would type it (the one of a venv is a link, which is what makes it that of
    the venv); `prefix`, the folder of the environment; `kind`; `label`, what people call it; `version` and `torch`,
    empty when they are not known or not there.
    """
    found: "list[dict[str, str]]" = []
    seen = set()
    for kind, label, path in _candidates(os.path.abspath(folder or os.curdir), environ):
        python = interpreter(path)
        prefix = os.path.dirname(os.path.dirname(python))
        if not python or not _is_text(python):
            continue
        # a venv is its folder; elsewhere several interpreters share one, /usr
        venv = os.path.isfile(os.path.join(prefix, "pyvenv.cfg")) or os.path.isdir(os.path.join(prefix, "conda-meta"))
        identity = os.path.realpath(prefix if venv else python)
        if identity in seen:
            continue
        seen.add(identity)
        version = version_of(python)
        found.append(
            {
                "python": python,
                "prefix": prefix,
                "kind": kind,
                "label": label,
                "version": version,
                "torch": torch_of(prefix, version, environ),
            }
        )
        if len(found) == MOST:
            break
    return found


def interpreter(path: str) -> str:
    """The interpreter of an environment that is named by its folder, or by the interpreter itself; empty: there is
    none."""
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(path):
        return path if _can_be_run(path) else ""
    for inside in ("", ".venv", "venv"):
        for name in ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe"):
            python = os.path.join(path, inside, *name.split("/"))
            if _can_be_run(python):
                return python
    named = sorted(glob.glob(os.path.join(glob.escape(path), "bin", "python3.[0-9]*")))
    return next((python for python in named if re.search(r"\.[0-9]+$", python) and _can_be_run(python)), "")


# --- where they are -----------------------------------------------------------------------------------------------


def _candidates(folder: str, environ: "dict[str, str]") -> "list[tuple[str, str, str]]":
    """Kind, label, and an interpreter or the folder of an environment, with repetitions."""
    rows = []
    active = environ.get("VIRTUAL_ENV", "")
    if active:
        rows.append(("active", short(active, environ), active))
    conda = environ.get("CONDA_PREFIX", "")
    if conda:
        rows.append(("active", environ.get("CONDA_DEFAULT_ENV") or short(conda, environ), conda))
    rows += _of_project(folder, environ) + _of_conda(environ) + _of_uv(environ)
    if folder == _home("~", environ):
        rows += _of_projects(folder, environ)
    return rows + _on_path(environ)


def _of_project(folder: str, environ: "dict[str, str]") -> "list[tuple[str, str, str]]":
    """`.venv` and `venv` in the folder and those above it; pixi's."""
    rows = []
    for _ in range(FOLDERS_UP):
        named = environ.get("UV_PROJECT_ENVIRONMENT", "")
        for name in (named, ".venv", "venv", "env"):
            path = os.path.join(folder, name)
            if name and os.path.isfile(os.path.join(path, "pyvenv.cfg")):
                rows.append(("project", short(path, environ), path))
        rows += [("project", short(path, environ), path) for path in _below(folder, ".pixi", "envs")]
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return rows


def _of_projects(home: str, environ: "dict[str, str]") -> "list[tuple[str, str, str]]":
    """`.venv` and `venv` of the projects in the home folder: somebody who logs in is in none of them."""
    places = [os.path.join(project, name) for project in _below(home)[:MOST] for name in (".venv", "venv")]
    return [("project", short(path, environ), path) for path in places if os.path.isfile(path + "/pyvenv.cfg")]


def _of_conda(environ: "dict[str, str]") -> "list[tuple[str, str, str]]":
    """The bases and their environments; `environments.txt` names those that were made elsewhere."""
    named = [environ.get("MAMBA_ROOT_PREFIX", "")]
    if environ.get("CONDA_EXE"):
        named.append(os.path.dirname(os.path.dirname(environ["CONDA_EXE"])))
    rows = []
    for base in named + [_home(path, environ) for path in CONDA_BASES]:
        if base and os.path.isdir(os.path.join(base, "conda-meta")):
            rows.append(("conda", "base in " + short(base, environ), base))
        if base:
            rows += [("conda", os.path.basename(path), path) for path in _below(base, "envs")]
    text = _read(_home("~/.conda/environments.txt", environ))
    for line in text.splitlines()[:MOST]:
        if os.path.isdir(os.path.join(line.strip(), "conda-meta")):
            rows.append(("conda", short(line.strip(), environ), line.strip()))
    return rows


def _of_uv(environ: "dict[str, str]") -> "list[tuple[str, str, str]]":
    """The Pythons that uv has installed."""
    data = environ.get("XDG_DATA_HOME") or _home("~/.local/share", environ)
    home = environ.get("UV_PYTHON_INSTALL_DIR") or os.path.join(data, "uv", "python")
    return [("uv", os.path.basename(path), path) for path in _below(home) if not os.path.islink(path)]


def _on_path(environ: "dict[str, str]") -> "list[tuple[str, str, str]]":
    """What `python3` and `python` mean in this environment, loaded modules included."""
    folders = [
        folder
        for folder in environ.get("PATH", "").split(os.pathsep)
        if os.path.isabs(folder) and os.path.basename(folder) != "shims"  # pyenv's: programs that look for another
    ]
    rows = []
    for name in ("python3", "python"):
        found = shutil.which(name, path=os.pathsep.join(folders)) if folders else None
        if found:
            rows.append(("path", found, found))
    return rows


# --- what their files say -----------------------------------------------------------------------------------------


def version_of(python: str) -> str:
    """`3.11.7`, or `3.11` where the files say no more; empty: nothing does."""
    prefix = os.path.dirname(os.path.dirname(python))
    settings = _settings(prefix)
    if settings:
        version = re.match(r"\d+\.\d+(\.\d+)?", settings.get("version", settings.get("version_info", "")))
        if version:
            return version.group()
    for path in _entries(prefix, "conda-meta"):
        conda = re.match(r"python-(\d+\.\d+\.\d+)-[^-]*\.json$", os.path.basename(path))
        if conda:
            return conda.group(1)
    real = os.path.realpath(python)
    home = re.search(r"\d+\.\d+\.\d+", os.path.basename(os.path.dirname(os.path.dirname(real))))  # uv's
    named = re.search(r"python(\d+\.\d+)$", os.path.basename(real))
    if home:
        return home.group()
    if named:
        return named.group(1)
    library = [re.match(r"python(\d+\.\d+)$", os.path.basename(path)) for path in _below(prefix, "lib")]
    return next((match.group(1) for match in library if match), "")


def torch_of(prefix: str, version: str, environ: "dict[str, str]") -> str:
    """The version of torch there, by its metadata; empty: none, or none that is seen without starting Python."""
    for folder in _site_folders(prefix, ".".join(version.split(".")[:2]), environ):
        for path in _entries(folder):
            match = re.match(r"torch-([^-]+)(-py[\d.]+)?\.(dist|egg)-info$", os.path.basename(path))
            if match:
                return match.group(1)
    return ""


def _site_folders(prefix: str, version: str, environ: "dict[str, str]") -> "list[str]":
    """Where packages can be, as `site` looks for them."""
    settings = _settings(prefix)
    folders = [
        os.path.join(prefix, "lib", "python" + version, "site-packages"),
        os.path.join(prefix, "Lib", "site-packages"),
    ]
    shared = not settings or settings.get("include-system-site-packages", "").lower() == "true"
    if settings and shared:
        base = os.path.dirname(settings.get("home", ""))
        folders += [os.path.join(base, "lib", "python" + version, "site-packages")]
    if shared:
        user = environ.get("PYTHONUSERBASE") or _home("~/.local", environ)
        folders += [
            os.path.join(user, "lib", "python" + version, "site-packages"),
            "/usr/local/lib/python%s/dist-packages" % version,  # Debian's
            "/usr/lib/python3/dist-packages",
        ][: 3 if prefix in ("/usr", "/usr/local") else 1]
    for folder in folders[:2]:
        for path in _entries(folder):
            if path.endswith(".pth"):
                lines = [os.path.join(folder, line.strip()) for line in _read(path).splitlines()[:50]]
                folders += [line for line in lines if os.path.isdir(line)]
    return folders


def _settings(prefix: str) -> "dict[str, str]":
    """What a venv's `pyvenv.cfg` says; empty where there is none."""
    lines = _read(os.path.join(prefix, "pyvenv.cfg")).splitlines()
    return {key.strip().lower(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


# --- files --------------------------------------------------------------------------------------------------------


def _can_be_run(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_text(path: str) -> bool:
    """Whether the name can be told to others; a name in another encoding cannot."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return path.isprintable()


def _entries(*parts: str) -> "list[str]":
    """What is in a folder, by name; nothing when there is no such folder."""
    folder = os.path.join(*parts)
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def _below(*parts: str) -> "list[str]":
    """The folders in a folder."""
    return [path for path in _entries(*parts) if os.path.isdir(path)]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST_FILE)
    except OSError:
        return ""


def _home(path: str, environ: "dict[str, str]") -> str:
    home = environ.get("HOME") or os.path.expanduser("~")
    return home + path[1:] if path.startswith("~") else path


def short(path: str, environ: "dict[str, str]") -> str:
    """A path as people write it."""
    home = _home("~", environ)
    return "~" + path[len(home) :] if path.startswith(home + os.sep) else path
