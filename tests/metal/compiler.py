"""Compiles kernel texts for the harness, once per text, shim, flags and compiler.

Builds: "fast" (g++ -O3, FMA contraction), "checked" (g++ with the instrumentation calls of
-fsanitize=thread, no contraction) and "clang" (bounds, alignment and shifts trap).
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
BUILDS = ("fast", "checked", "clang")
MIN_CLANG = 16  # the first whose _Float16 needs no special processor

_COMMON = ["-std=c++20", "-fPIC", "-fsingle-precision-constant", "-fno-strict-aliasing", "-w"]
_NATIVE = ["-march=native"] if platform.machine() == "x86_64" else []
_FLAGS = {
    "runtime": ["-std=c++20", "-O2", "-g1", "-fPIC"],
    # 16-bit arithmetic rounds after every operation, as on a GPU.
    "fast": [*_COMMON, "-O3", *_NATIVE, "-ffp-contract=fast", "-fexcess-precision=16", "-g1"],
    "checked": [
        *(_COMMON + ["-O1", "-g1", *_NATIVE, "-ffp-contract=off", "-fexcess-precision=16"]),
        *("-fsanitize=thread", "-fsanitize=alignment,shift,bounds", "-DRT_CHECKED=1"),
    ],
    "clang": [
        *(
            "-std=c++20",
            "-fPIC",
            "-fno-strict-aliasing",
            "-w",
            "-O0",
            "-fsanitize=local-bounds",
            "-g1",
            *_NATIVE,
        ),
        *("-fsanitize=bounds,alignment,shift", "-fsanitize-trap=all", "-DRT_CHECKED=1"),
    ],
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


def _build(compiler_path: str, flags: list[str], suffix: str, text: str | None) -> Path:
    """Compile a text (or, when None, the runtime) to a shared library, unless it exists."""
    parts = [_sources(), _compiler_identity(compiler_path), " ".join(flags), text or ""]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    library = cache_folder() / f"{key}-{suffix}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        target = Path(scratch) / "out.so"
        includes = ["-I", str(HERE / "shim"), "-I", str(HERE / "runtime")]
        if text is None:
            sources = [str(path) for path in sorted((HERE / "runtime").glob("*.cpp"))]
        else:
            source = Path(scratch) / "kernel.cpp"
            source.write_text(text, encoding="utf-8")
            sources = [str(source)]
        _run([compiler_path, *flags, *includes, *sources, "-o", str(target)])
        os.replace(target, library)
    return library


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(done.stderr.strip()[:6000])


def runtime_library() -> Path:
    """The shared library that all kernels call."""
    return _build(compiler("fast"), [*_FLAGS["runtime"], "-shared"], "runtime", None)


def kernel_library(text: str, build: str) -> Path:
    """The shared library of one kernel text (see ``text.harness_text``) for a build."""
    if build not in BUILDS:
        raise ValueError(f"build {build!r}: one of {', '.join(BUILDS)}")
    flags = list(_FLAGS[build])
    # Two steps for the checked build: linking with -fsanitize=thread would add TSan's own runtime.
    link = ["-shared"]
    if build == "checked":
        link += [f"-Wl,--wrap={name}" for name in ("memcpy", "memmove", "memset")]
    path = compiler(build)
    if build != "checked":
        return _build(path, [*flags, *link], build, text)
    return _build_in_two_steps(path, flags, link, text)


def _build_in_two_steps(path: str, flags: list[str], link: list[str], text: str) -> Path:
    parts = [_sources(), _compiler_identity(path), " ".join(flags + link), text]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    library = cache_folder() / f"{key}-checked.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        source, middle, target = (Path(scratch) / n for n in ("kernel.cpp", "kernel.o", "out.so"))
        source.write_text(text, encoding="utf-8")
        includes = ["-I", str(HERE / "shim"), "-I", str(HERE / "runtime")]
        _run([path, *flags, *includes, "-c", str(source), "-o", str(middle)])
        _run([path, *link, str(middle), "-o", str(target)])
        os.replace(target, library)
    return library
