"""Finding a model file: the places that are looked at, in order, and the choice among them.

The working folder is not among the places: a repository must not be able to bring its own model.
Finding reads folders and file names, at most a few bytes of a file; it never downloads.
"""

import difflib
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ds4agent import paths
from ds4agent.config import Config
from ds4agent.errors import ConfigError, Ds4Error
from ds4agent.known_models import BY_NAME, KNOWN_MODELS, KnownModel, known_file

# general.architecture of the files that the engine runs.
SUPPORTED_ARCHITECTURES = frozenset({"deepseek4", "llama", "qwen2", "qwen3"})
# Those that are opened without being named. DeepSeek V4 has no fused kernels yet: too slow to
# come unasked.
DEFAULT_ARCHITECTURES = SUPPORTED_ARCHITECTURES - {"deepseek4"}

_PART = re.compile(r"-\d+-of-\d+\.gguf$", re.IGNORECASE)
_FALLBACK_NAME = "qwen2.5-coder-0.5b"  # where memory is too small for the usual default
_DEFAULT_NAME = "qwen2.5-coder-1.5b"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that may hold models, and the pattern of their paths below it."""

    label: str
    folder: Path
    pattern: str = "*.gguf"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A GGUF file on this machine. ``known`` is set when its name and size are a known model's."""

    path: Path
    n_bytes: int
    place: Place
    known: KnownModel | None
    problem: str = ""  # why it is not used by itself


def places() -> tuple[Place, ...]:
    """Return where models are looked for, first place first."""
    home = Path.home()
    hf_home = Path(os.environ.get("HF_HOME") or home / ".cache" / "huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or hf_home / "hub").expanduser()
    return (
        Place("models folder", paths.models_dir()),
        Place("ds4 folder", paths.ds4_folder()),
        Place("ds4 working folder", home / "ds4"),
        Place("ds4 working folder", home / "ds4" / "gguf"),
        Place("Hugging Face cache", hub, "models--*/snapshots/*/**/*.gguf"),
        Place("LM Studio", home / ".lmstudio" / "models", "*/*/*.gguf"),
        Place("LM Studio", home / ".cache" / "lm-studio" / "models", "*/*/*.gguf"),
    )


def found_models() -> list[FoundModel]:
    """Return every model file in the known places, in search order, each file once."""
    seen: set[Path] = set()
    found = []
    for place in places():
        for path in sorted(_files(place)):
            real = path.resolve()
            if real not in seen:
                seen.add(real)
                found.append(_look_at(path, place))
    return found


def machine_memory_bytes() -> int:
    """Return the machine's memory, or the container's share of it where that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def default_model(memory_bytes: int, present: frozenset[str] = frozenset()) -> KnownModel:
    """Choose the known model for a machine.

    Args:
        memory_bytes: memory of the machine.
        present: names of the known models whose files are here.

    Returns:
        The largest V4 Flash that is present, fits, and may come unasked; else the small coder
        model that fits. Nobody is made to download 80 GB by a default.
    """
    for model in KNOWN_MODELS:
        if (
            model.name.startswith("v4-flash")
            and model.name in present
            and model.architecture in DEFAULT_ARCHITECTURES
            and memory_bytes >= model.min_memory_bytes
        ):
            return model
    default = BY_NAME[_DEFAULT_NAME]
    return default if memory_bytes >= default.min_memory_bytes else BY_NAME[_FALLBACK_NAME]


def find_model(name_or_path: str | None, config: Config) -> Path:
    """Resolve what the person asked for, or choose, and return the file.

    Args:
        name_or_path: from the command line: a known name, a file, or the name of a found file.
            None takes the setting ``model`` (which ``DS4_MODEL`` overrules), and where that is
            empty, too, the best of the models that are here.

    Raises:
        Ds4Error: nothing was found; the message lists every place.
        ConfigError: the name is neither a file nor a known model.
    """
    wanted = name_or_path or config.model
    if not wanted or wanted == "default":
        return _choose(found_models())
    if wanted in BY_NAME:
        return _find_known(BY_NAME[wanted], found_models())
    path = Path(wanted).expanduser()
    try:
        if path.is_file():
            return path.absolute()
        if path.is_dir():
            raise ConfigError(f"model {wanted} is a folder, expected a GGUF file", "Name the file.")
    except PermissionError as error:  # of the folder that it is in
        raise ConfigError(
            f"model {wanted} may not be read by this user", "Change the rights of its folder."
        ) from error
    for model in found_models():
        if wanted in (model.path.name, model.path.stem):
            return model.path
    near = difflib.get_close_matches(wanted, BY_NAME, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Known names: {', '.join(BY_NAME)}."
    raise ConfigError(f"model {wanted!r} is no file, and no known name; {_looked_at()}", hint)


def engine_opener(
    name_or_path: str | None, config: Config, n_sessions: int = 1, n_copies: int = 0
) -> Callable[..., Any]:
    """Find a model and return what loads it: called with a progress callback (bytes done, bytes
    in all) and an event that asks it to give up. It refuses what does not fit into the memory
    with so many sessions and copies of sessions (``engine.memory.check_fits``).

    Raises:
        Ds4Error: there is no such model.
    """
    path = find_model(name_or_path, config).absolute()

    def open_engine(progress: Callable[[int, int], None], cancel: Any) -> Any:
        # Imported in the worker's thread: the screen is painted meanwhile.
        from engine.engine import Engine

        return Engine.open(
            path,
            device=config.device,
            ctx=config.ctx,
            progress=progress,
            cancel=cancel,
            n_sessions=n_sessions,
            n_copies=n_copies,
        )

    return open_engine


def best_found(found: list[FoundModel], memory_bytes: int) -> FoundModel | None:
    """Return the model that is used when none is named: the default, else the first that runs."""
    usable = [model for model in found if not model.problem]
    by_name = {model.known.name: model for model in reversed(usable) if model.known}
    default = default_model(memory_bytes, frozenset(by_name))
    if default.name in by_name:
        return by_name[default.name]
    fitting = [
        m
        for m in usable
        if (m.known is None or m.known.min_memory_bytes <= memory_bytes)
        and _architecture(m.path) in DEFAULT_ARCHITECTURES
    ]
    # The model for tests comes last: it runs, but it cannot do an agent's work.
    fitting.sort(key=lambda m: m.known is not None and m.known.name == "smollm2-135m")
    return fitting[0] if fitting else None


def pull_command(model: KnownModel) -> str:
    """Return the command that fetches a model."""
    unverified = "" if model.sha256 else " --no-verify"
    return f"ds4-agent models pull {model.name}{unverified}"


def gigabytes(n_bytes: int) -> str:
    """Write a size as people and disks count it: 1.12 GB, 98 MB."""
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"


def _choose(found: list[FoundModel]) -> Path:
    memory = machine_memory_bytes()
    best = best_found(found, memory)
    if best is not None:
        return best.path
    model = default_model(memory)
    raise Ds4Error(
        f"no model found; {_looked_at()}",
        f"Run `{pull_command(model)}` ({gigabytes(model.n_bytes)}), or name a file with --model.",
    )


def _find_known(model: KnownModel, found: list[FoundModel]) -> Path:
    damaged = ""
    for candidate in found:
        if candidate.known is model and not candidate.problem:
            return candidate.path
        if known_file(candidate.path.name) is model:
            damaged = f"{candidate.path}: {candidate.problem}; "
    raise Ds4Error(
        f"model {model.name} is not here; {damaged}{_looked_at()}",
        f"Run `{pull_command(model)}` ({gigabytes(model.n_bytes)}).",
    )


def _looked_at() -> str:
    return "looked in " + ", ".join(f"{place.folder} ({place.label})" for place in places())


def _files(place: Place) -> list[Path]:
    try:
        candidates = list(place.folder.glob(place.pattern))
    except OSError:  # an unreadable folder holds no model for us
        return []
    return [path for path in candidates if os.path.isfile(path) and not path.name.startswith(".")]


def _look_at(path: Path, place: Place) -> FoundModel:
    n_bytes = path.stat().st_size
    # A link may have a name of its own, as ds4flash.gguf does in the C program's folder.
    known = known_file(path.name) or known_file(path.resolve().name)
    problem = ""
    if known is not None and known.sha256 and n_bytes != known.n_bytes:
        problem = f"it has {n_bytes:,} bytes, expected {known.n_bytes:,}"
        known = None
    elif _PART.search(path.name):
        problem = "it is one part of a split model"
    elif path.name.lower().startswith("mmproj"):
        problem = "it is an image encoder, no language model"
    return FoundModel(path, n_bytes, place, known, problem)


def _architecture(path: Path) -> str:
    """Return general.architecture where it is the first key, as every known writer puts it.

    Opening a whole model file reads its vocabulary; this choice is made before each start.
    """
    wanted = b"general.architecture"
    try:
        with path.open("rb") as file:
            head = file.read(256)
        magic, _version, _n_tensors, _n_pairs, key_bytes = struct.unpack_from("<4sIQQQ", head)
        value_at = 32 + key_bytes
        type_id, n_value = struct.unpack_from("<IQ", head, value_at)
    except (OSError, struct.error):
        return ""
    is_text = magic == b"GGUF" and head[32:value_at] == wanted and type_id == 8  # 8: string
    return (
        head[value_at + 12 : value_at + 12 + n_value].decode("utf-8", "replace") if is_text else ""
    )
