"""Compiles the libraries of the stand-in: the CUDA runtime, the driver, NVML, the operators, and empty ones in the
place of NVIDIA's that torch is linked with and nothing calls (cuBLAS, cuDNN, NCCL, …: 4 GB). Needs gcc, g++ and
binutils."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fakes.nvml_library import SOURCES as NVML
from fakes.nvml_library import build as build_nvml

HERE = Path(__file__).parent
RUNTIME, DRIVER = "libcudart.so.13", "libcuda.so.1"
C = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden"]
CPP = ["g++", "-std=c++20", "-O1", "-w", "-fPIC"]  # -w: the headers are torch's
SHARED = ["gcc", "-O0", "-w", "-fno-builtin", "-fPIC", "-shared"]

CODES = {"cublas": 15, "cudnn": 3000, "cusparse": 10, "cufft": 16, "cusolver": 7, "nccl": 3, "nvrtc": 4, "cupti": 999}
"""What a function of an empty library returns, by the beginning of its name: that library's number for "not supported"
or for an internal error. Others return 1."""
TEXT = re.compile(r"Get(Error|Status)(String|Name)$|GetLastError$")
"""Functions that return a text."""
EXCEPTIONS = {
    "cudnnGetVersion": "unsigned long cudnnGetVersion(void) { return 92400; }",
    "cudnnGetProperty": "int cudnnGetProperty(int which, int *to) { *to = (int[]){9, 24, 0}[which]; return 0; }",
    "ncclGetVersion": "int ncclGetVersion(int *version) { *version = 23007; return 0; }",
}
"""Functions that do not fail: torch asks them for the versions that its wheel requires."""


class BuildError(Exception):
    """What could not be compiled, with the compiler's words."""


@dataclass(frozen=True)
class Place:
    """Where the libraries belong: torch's folder, the one in which torch looks for NVIDIA's, the headers, and those of
    the environment."""

    torch: Path
    nvidia: Path
    headers: Path
    driver: Path
    site: Path
    scratch: Path


@dataclass
class Wanted:
    """A library that torch is linked with, and what it takes from it."""

    version: str = ""
    functions: set[str] | None = None


def build(place: Place) -> None:
    """Everything. Raises `BuildError`."""
    for folder in (place.nvidia, place.driver, place.scratch):
        folder.mkdir(parents=True, exist_ok=True)
    wanted = _wanted(place.torch / "lib")
    with ThreadPoolExecutor(2) as pool:
        compiled = [
            pool.submit(_operator_object, place, source) for source in sorted((HERE / "operators").glob("*.cpp"))
        ]
        _runtime(place, wanted[RUNTIME])
        _driver(place)
        build_nvml(place.driver)
        for name in wanted.keys() - {RUNTIME, DRIVER}:
            _empty(place, name, wanted[name])
        _operators(place, [job.result() for job in compiled])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise BuildError("\n".join([" ".join(command), *errors[:20]]))
    return done.stdout


def _wanted(folder: Path) -> dict[str, Wanted]:
    """NVIDIA's libraries that torch's are linked with, and the functions that torch's do not have themselves."""
    libraries: dict[str, Wanted] = defaultdict(Wanted)
    versioned: dict[str, set[str]] = defaultdict(set)
    defined: set[str] = set()
    plain: set[str] = set()
    for path in sorted(folder.glob("*.so")):
        for name in re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl)[^\]]*)\]", _run(["readelf", "-dW", str(path)])):
            libraries[name].functions = set()
        for name, version in re.findall(
            r"File: (lib(?:cu|nv)\S+) .*\n.*Name: (\S+)", _run(["readelf", "-VW", str(path)])
        ):
            libraries[name].version = version
        for line in _run(["readelf", "--dyn-syms", "-W", str(path)]).splitlines():
            fields = line.split()
            if len(fields) < 8 or not fields[0].endswith(":"):
                continue
            symbol, _, version = fields[7].partition("@")
            if fields[6] != "UND":
                defined.add(symbol)
            elif version:
                versioned[version.strip("@")].add(symbol)
            elif re.match(r"cu|nccl|nv", symbol):
                plain.add(symbol)
    by_length = sorted(libraries, key=len, reverse=True)  # libcusparseLt before libcusparse
    for symbol in plain - defined:
        for name in by_length:
            if symbol.lower().startswith(_stem(name).lower()):
                libraries[name].functions = (libraries[name].functions or set()) | {symbol}
                break
    for library in libraries.values():
        library.functions = (library.functions or set()) | versioned.get(library.version, set())
    return dict(libraries)


def _stem(name: str) -> str:
    return name.removeprefix("lib").partition(".so")[0]


def _map_of_versions(place: Place, name: str, version: str) -> list[str]:
    """The linker's option that gives every function the version with which torch asks for it."""
    if not version:
        return []
    path = place.scratch / f"{name}.map"
    path.write_text(f"{version} {{ global: *; }};\n", encoding="utf-8")
    return [f"-Wl,--version-script={path}"]


def _runtime(place: Place, wanted: Wanted) -> None:
    """Our own functions, and for all others of the runtime one that says that it is not implemented."""
    sources = [*sorted((HERE / "runtime").glob("*.c")), NVML / "models.c", NVML / "ledger.c"]
    objects = []
    for source in sources:
        objects.append(str(place.scratch / f"runtime-{source.stem}.o"))
        _run([*C, f"-I{place.headers}", f"-I{NVML}", "-c", str(source), "-o", objects[-1]])
    have = set(re.findall(r" T (\w+)", _run(["nm", *objects])))
    lines = ["int fake_cuda_missing(const char *);"]
    for function in sorted((wanted.functions or set()) - have):
        lines.append(f'int {function}(void) {{ return fake_cuda_missing("{function}"); }}')
    rest = place.scratch / "rest.c"
    rest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    versions = _map_of_versions(place, RUNTIME, RUNTIME)
    output = ["-o", str(place.nvidia / RUNTIME), f"-Wl,-soname,{RUNTIME}"]
    _run([*SHARED, *objects, str(rest), *output, *versions, "-lpthread", "-ldl"])


def _driver(place: Place) -> None:
    """Empty, and it loads the runtime, which has the driver's functions, too."""
    source = place.scratch / "driver.c"
    source.write_text("", encoding="utf-8")
    output = ["-o", str(place.driver / DRIVER), f"-Wl,-soname,{DRIVER}"]
    _run(
        [*SHARED, str(source), *output, "-Wl,--no-as-needed", str(place.nvidia / RUNTIME), f"-Wl,-rpath,{place.nvidia}"]
    )


def _empty(place: Place, name: str, wanted: Wanted) -> None:
    """A library all of whose functions fail, and are written to the log."""
    stem = _stem(name)
    code = next((code for begin, code in CODES.items() if stem.startswith(begin)), 1)
    lines = ["int fake_cuda_missing(const char *);"]
    for function in sorted(wanted.functions or ()):
        if function in EXCEPTIONS:
            lines.append(EXCEPTIONS[function])
        elif TEXT.search(function):
            lines.append(f'const char *{function}(void) {{ return "there is no {stem} in the stand-in for CUDA"; }}')
        else:
            lines.append(f'int {function}(void) {{ fake_cuda_missing("{function}"); return {code}; }}')
    source = place.scratch / f"{stem}.c"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    output = ["-o", str(place.nvidia / name), f"-Wl,-soname,{name}"]
    link = [str(place.nvidia / RUNTIME), "-Wl,-rpath,$ORIGIN", *_map_of_versions(place, name, wanted.version)]
    _run([*SHARED, str(source), *output, *link])


def _device_checks(listed: str) -> str:
    """Which operators check that their tensors are on one device, and the name of the function that does, as torchgen
    writes it into torch (`RegisterDispatchKey.gen_device_check`). `listed`: torch's own list of operators."""
    lines = []
    for entry in listed.split("\n- func: ")[1:]:
        schema = entry.partition("\n")[0]
        operator = schema.partition("(")[0]
        name, _, overload = operator.partition(".")
        if "device_check: NoCheck" in entry:
            continue
        if re.search(r"\*, .*\(\w!\).* -> ", schema):
            name += "_out"
        if "structured" not in entry:
            name = f"{overload}_{name}"
        elif overload:
            name = f"{name}_{overload}"
        lines.append(f'{{"aten::{operator}", "wrapper_CUDA_{name}"}},\n')
    return "".join(lines)


def _operator_object(place: Place, source: Path) -> str:
    listed = (place.site / "torchgen/packaged/ATen/native/native_functions.yaml").read_text(encoding="utf-8")
    generated = place.scratch / source.stem
    generated.mkdir(exist_ok=True)
    (generated / "device_checks.inc").write_text(_device_checks(listed), encoding="utf-8")
    output = place.scratch / f"operators-{source.stem}.o"
    if output.exists() and output.stat().st_mtime > max(path.stat().st_mtime for path in source.parent.iterdir()):
        return str(output)  # made before
    include = place.torch / "include"
    headers = [f"-I{generated}", f"-I{include}", f"-I{include}/torch/csrc/api/include", f"-I{place.headers}"]
    _run([*CPP, *headers, "-c", str(source), "-o", str(output)])
    return str(output)


def _operators(place: Place, objects: list[str]) -> None:
    folder = place.torch / "lib"
    libraries = ["-ltorch", "-ltorch_cpu", "-ltorch_cuda", "-lc10", "-lc10_cuda", str(place.nvidia / RUNTIME)]
    link = [
        f"-L{folder}",
        *libraries,
        f"-Wl,-rpath,{folder}",
        f"-Wl,-rpath,{place.nvidia}",
        "-Wl,--allow-shlib-undefined",
    ]
    _run(["g++", "-shared", *objects, "-o", str(place.site / "fake_cuda_operators.so"), *link])
