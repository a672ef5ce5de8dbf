"""Compiles kernel texts for the harness, once per text, shim, flags and compiler.

Builds: "fast" (g++ -O3, FMA contraction), "checked" (g++ with the instrumentation calls of
-fsanitize=thread, no contraction) and "clang" (bounds, alignment and shifts trap). In each a
variable without a first value starts as a large negative number, or a large one without a sign.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
BUILDS = ("fast", "checked", "clang")
OTHER_BUILDS = ("quick", "counted")  # compiled quickly, for mutants; with counts of lines that ran
MIN_CLANG = 16  # the first whose _Float16 needs no special processor

_COMMON = [
    *("-std=c++20", "-fPIC", "-fno-strict-aliasing", "-w", "-ftrivial-auto-var-init=pattern"),
]
_NATIVE = ["-march=native"] if platform.machine() == "x86_64" else []
_GNU = ["-fsingle-precision-constant", "-fexcess-precision=16"]
_FLAGS = {
    "runtime": ["-std=c++20", "-O2", "-g1", "-fPIC"],
    # 16-bit arithmetic rounds after every operation, as on a GPU.
    "fast": [*_COMMON, *_GNU, "-O3", *_NATIVE, "-ffp-contract=fast", "-g1"],
    "checked": [
        *(*_COMMON, *_GNU, "-O1", *_NATIVE, "-ffp-contract=off", "-g1"),
        *("-fsanitize=thread", "-fsanitize=alignment,shift,bounds", "-DRT_CHECKED=1"),
    ],
    "clang": [
        *(*_COMMON, "-O0", *_NATIVE, "-g1", "-fsanitize=bounds,local-bounds,alignment,shift"),
        *("-fsanitize-trap=all", "-DRT_CHECKED=1"),
    ],
    "quick": [*_COMMON, *_GNU, "-O0", *_NATIVE, "-ffp-contract=fast"],
    "counted": [*_COMMON, *_GNU, "-O0", *_NATIVE, "--coverage"],
}


class CompileError(Exception):
    """The compiler refused a kernel: its messages, which point into the body."""


class MissingCompiler(Exception):
    """A compiler that a build needs is not installed; the text names it."""


@cache
def compiler(build: str) -> str:
    """Path of the compiler of a build. Raises MissingCompiler."""
    if build != "clang":
        path = shutil.which("g++")
        if path is None:
            raise MissingCompiler("the Metal harness needs g++ (Debian: apt install g++)")
        return path
    for name in ("clang++", *(f"clang++-{n}" for n in range(30, MIN_CLANG - 1, -1))):
        path = shutil.which(name)
        if path and clang_version(path) >= MIN_CLANG:
            return path
    raise MissingCompiler(
        f"the clang build of the Metal harness needs clang {MIN_CLANG} or newer "
        f"(Debian: apt install clang-{MIN_CLANG})"
    )


@cache
def available_builds() -> tuple[str, ...]:
    """The builds whose compilers are installed."""
    found = []
    for build in BUILDS:
        try:
            compiler(build)
        except MissingCompiler:
            continue
        found.append(build)
    return tuple(found)


def clang_version(path: str) -> int:
    """Major version of a clang."""
    done = subprocess.run([path, "-dumpversion"], capture_output=True, text=True, check=True)
    return int(done.stdout.split(".")[0])


@cache
def _compiler_identity(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0] + platform.node()  # -march=native: never another machine's


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted([*(HERE / "shim").iterdir(), *(HERE / "runtime").iterdir()]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def cache_folder() -> Path:
    """The folder of compiled kernels, outside the repository and only ours."""
    folder = Path(tempfile.gettempdir()) / f"ds4-metal-harness-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} belongs to somebody else or is writable by others")
    return folder


def _library(key_parts: list[str], suffix: str, make: Callable[[Path, Path], None]) -> Path:
    """The shared library of these parts; ``make`` (scratch folder, target) builds a missing one."""
    key = hashlib.sha256("\0".join([_sources(), *key_parts]).encode()).hexdigest()[:32]
    library = cache_folder() / f"{key}-{suffix}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            target = Path(scratch) / "out.so"
            make(Path(scratch), target)
            os.replace(target, library)
    return library


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(done.stderr.strip()[:6000])


_INCLUDES = ["-I", str(HERE / "shim"), "-I", str(HERE / "runtime")]


def _compile(command: list[str], text: str, folder: Path, target: Path) -> None:
    source = folder / "kernel.cpp"
    source.write_text(text, encoding="utf-8")
    _run([*command, *_INCLUDES, str(source), "-o", str(target)])


@cache
def _precompiled(build: str) -> Path:
    """The folder of the shim's compiled header: reading it is half of what a small text costs."""
    command = [compiler(build), *_FLAGS[build], *_INCLUDES, "-x", "c++-header"]
    source = str(HERE / "shim" / "metal_shim.h")
    parts = [_compiler_identity(command[0]), *command]
    library = _library(
        parts, "header", lambda _, target: _run([*command, source, "-o", str(target)])
    )
    folder = library.with_suffix("")
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        os.link(library, folder / "metal_shim.h.gch")
    return folder


def runtime_library() -> Path:
    """The shared library that all kernels call."""
    command = [compiler("fast"), *_FLAGS["runtime"], "-shared"]
    sources = [str(path) for path in sorted((HERE / "runtime").glob("*.cpp"))]
    parts = [_compiler_identity(command[0]), *command]
    return _library(
        parts, "runtime", lambda _, target: _run([*command, *sources, "-o", str(target)])
    )


def kernel_library(text: str, build: str) -> Path:
    """The shared library of one kernel text (see ``text.harness_text``) for a build."""
    if build not in (*BUILDS, "quick"):
        raise ValueError(f"build {build!r}: one of {', '.join(BUILDS)}")
    command = [compiler(build), *_FLAGS[build]]
    if build != "clang":
        command += ["-I", str(_precompiled(build))]
    link = ["-shared"]
    if build == "checked":
        link += [f"-Wl,--wrap={name}" for name in ("memcpy", "memmove", "memset")]

    def make(scratch: Path, target: Path) -> None:
        if build != "checked":
            _compile([*command, *link], text, scratch, target)
            return
        # In two steps: linking with -fsanitize=thread would add TSan's own runtime.
        _compile([*command, "-c"], text, scratch, scratch / "kernel.o")
        _run([command[0], *link, str(scratch / "kernel.o"), "-o", str(target)])

    return _library([_compiler_identity(command[0]), *command, *link, text], build, make)


def counted_library(text: str, folder: Path) -> Path:
    """A library that counts the lines that run; its ``coverage_dump`` writes them to ``folder``."""
    text += '\nextern "C" void __gcov_dump(void);\n'
    text += 'extern "C" void coverage_dump(void) { __gcov_dump(); }\n'
    command = [compiler("fast"), *_FLAGS["counted"], "-shared"]
    _compile(command, text, folder, folder / "out.so")
    return folder / "out.so"


def lines_run(folder: Path) -> dict[tuple[str, int], int]:
    """(file, line) -> how often it ran, of every line with code, after ``coverage_dump``."""
    (data,) = folder.glob("*.gcda")
    done = subprocess.run(
        ["gcov", "--stdout", "--json-format", data.name], capture_output=True, text=True, cwd=folder
    )
    counts: dict[tuple[str, int], int] = {}
    for file in json.loads(done.stdout.splitlines()[0])["files"]:
        for line in file["lines"]:
            key = file["file"].split("/")[-1], line["line_number"]
            counts[key] = max(counts.get(key, 0), line["count"])
    return counts
