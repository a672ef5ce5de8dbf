"""The subcommand ``models``: what is here, fetching a known model, and the facts of one file."""

import argparse
import sys
import time
from pathlib import Path

from ds4agent import models, paths
from ds4agent.config import load_config
from ds4agent.errors import UsageError
from ds4agent.known_models import BY_NAME, KNOWN_MODELS, KnownModel
from ds4agent.models import FoundModel, gigabytes
from ds4agent.plain import plain
from ds4agent.pull import check_can_verify, present, pull
from ds4agent.verify import remembered_sha256, verified_sha256

_BAR_CELLS = 24
_REPAINT_S = 0.25
_LOG_STEP = 0.1  # share of the file between two lines where there is no terminal


def add_parser(subparsers) -> None:
    """Add ``models`` and its actions to the command line."""
    parser = subparsers.add_parser("models", help="list, fetch and look at model files")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="known models, and what is on this machine")
    listing.set_defaults(run=list_models)

    pulling = actions.add_parser("pull", help="fetch a known model")
    pulling.add_argument("name", metavar="NAME", help="a known name, or `default`")
    pulling.add_argument("--yes", action="store_true", help="do not ask before downloading")
    pulling.add_argument(
        "--no-verify", action="store_true", help="accept a file whose hash is not known"
    )
    pulling.set_defaults(run=pull_model)

    checking = actions.add_parser("verify", help="compare a file's SHA-256 with the known one")
    checking.add_argument("name", metavar="NAME", help="a known name")
    checking.set_defaults(run=verify_model)

    info = actions.add_parser("info", help="facts of a model file, and whether it can be used")
    info.add_argument("file", metavar="FILE", help="a GGUF file or a known name")
    info.set_defaults(run=show_info)


def list_models(args: argparse.Namespace) -> int:
    """Print the known models and every model file that the search finds."""
    found = models.found_models()
    best = models.best_found(found, models.machine_memory_bytes())
    here = {model.known.name for model in found if model.known and not model.problem}
    _say("known models (fetch one with `ds4-agent models pull NAME`)")
    for model in KNOWN_MODELS:
        mark = "here" if model.name in here else ""
        _say(f"  {model.name:20} {_size_text(model):>9}  {mark:4}  {model.title}{_lack(model)}")
    _say("")
    if not found:
        _say("no model file found; looked in")
        for place in models.places():
            _say(f"  {place.folder}  ({place.label})")
        return 0
    _say("found on this machine (* is used when none is named)")
    for model in found:
        star = "*" if best is not None and model.path == best.path else " "
        _say(f"{star} {gigabytes(model.n_bytes):>9}  {model.path}  ({_remarks(model)})")
    return 0


def pull_model(args: argparse.Namespace) -> int:
    """Fetch one model, after saying what it will cost."""
    if args.name == "default":
        memory = models.machine_memory_bytes()
        best = models.best_found(models.found_models(), memory)
        model = models.default_model(memory)
        # A person's own file will do, and so will V4 Flash; a smaller known model will not.
        smaller = KNOWN_MODELS[KNOWN_MODELS.index(model) + 1 :]
        if best is not None and best.known not in smaller:
            _say(f"{best.path} is here ({gigabytes(best.n_bytes)}); nothing to fetch")
            return 0
    elif args.name in BY_NAME:
        model = BY_NAME[args.name]
    else:
        raise UsageError(
            f"{args.name!r} is no known model", f"Known names: {', '.join(BY_NAME)}, default."
        )
    wants_check = not args.no_verify
    check_can_verify(model, wants_check)
    if not present(model) and not _agreed(model, args.yes):
        _say("nothing was fetched")
        return 1
    bar = _ProgressLine()
    started = time.monotonic()
    try:
        path = pull(model, bar.say, bar.update, verify=wants_check)
    except KeyboardInterrupt:
        bar.say("interrupted; what has arrived is kept: run the command again to go on")
        return 130
    finally:
        bar.end()
    checked = "SHA-256 verified" if wants_check else "hash not checked"
    _say(f"{model.name}: {path} ({checked}, {time.monotonic() - started:.1f} s)")
    return 0


def verify_model(args: argparse.Namespace) -> int:
    """Hash one file (once: the result is remembered) and compare."""
    model = BY_NAME.get(args.name)
    if model is None or not model.sha256:
        raise UsageError(
            f"no hash is known for {args.name!r}",
            f"Choose one of {', '.join(m.name for m in KNOWN_MODELS if m.sha256)}.",
        )
    path = models.find_model(args.name, load_config(Path.cwd()))
    bar = _ProgressLine()
    try:
        found = verified_sha256(path, bar.update)
    finally:
        bar.end()
    good = found == model.sha256
    _say(f"{path}: {'verified' if good else 'WRONG'}, SHA-256 {found}")
    if not good:
        _say(f"expected {model.sha256}; move the file away and pull {model.name} again")
    return 0 if good else 1


def show_info(args: argparse.Namespace) -> int:
    """Print what a model file holds; exit code 1 when it cannot be used here."""
    from ds4agent.model_facts import describe  # reads tensors' directory: needs numpy

    path = models.find_model(args.file, load_config(Path.cwd()))
    lines, usable = describe(path)
    for line in lines:
        _say(line)
    return 0 if usable else 1


def _lack(model: KnownModel) -> str:
    supported = model.architecture in models.SUPPORTED_ARCHITECTURES
    return "" if supported else f" [this version cannot run {model.architecture} yet]"


def _agreed(model: KnownModel, yes: bool) -> bool:
    licence = model.licence or "licence not recorded here: read it at the source"
    exact = f" ({model.n_bytes:,} bytes)" if model.sha256 else " (estimate)"
    _say(f"{model.name}: {model.title}{_lack(model)}")
    _say(f"  download {gigabytes(model.n_bytes)}{exact}, {licence}, to {paths.models_dir()}")
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("nobody is here to agree to this download", "Add --yes.")
    sys.stdout.write("Download it? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _size_text(model: KnownModel) -> str:
    return gigabytes(model.n_bytes) if model.sha256 else f"~{model.n_bytes / 1e9:.0f} GB"


def _remarks(model: FoundModel) -> str:
    remarks = [model.place.label]
    if model.known:
        remarks.append(model.known.name)
        if model.known.sha256 and remembered_sha256(model.path) == model.known.sha256:
            remarks.append("verified")
    if model.problem:
        remarks.append(f"not used: {model.problem}")
    return ", ".join(remarks)


class _ProgressLine:
    """A line that is repainted on a terminal, and a line every tenth elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._painted_at = 0.0
        self._logged = 0.0
        self._started_at = time.monotonic()
        self._first_bytes: int | None = None
        self._is_open = False

    def update(self, done_bytes: int, total_bytes: int) -> None:
        now = time.monotonic()
        if self._first_bytes is None:
            self._first_bytes, self._started_at = done_bytes, now
        share = done_bytes / total_bytes if total_bytes else 1.0
        rate = (done_bytes - self._first_bytes) / max(now - self._started_at, 1e-3)
        text = f"{share:4.0%} of {gigabytes(total_bytes)}, {rate / 1e6:.1f} MB/s"
        if not self._is_terminal:
            if share >= self._logged + _LOG_STEP:
                self._logged = share
                _say(text)
            return
        if now - self._painted_at < _REPAINT_S and done_bytes < total_bytes:
            return
        self._painted_at = now
        full = int(share * _BAR_CELLS)
        left_s = (total_bytes - done_bytes) / rate if rate > 0 else 0
        bar = "#" * full + "-" * (_BAR_CELLS - full)
        sys.stdout.write(f"\r\x1b[K[{bar}] {text}, {left_s:.0f} s left")
        sys.stdout.flush()
        self._is_open = True

    def say(self, text: str) -> None:
        """Print a line of its own."""
        self.end()
        _say(text)

    def end(self) -> None:
        if self._is_open:
            sys.stdout.write("\n")
            self._is_open = False


def _say(text: str) -> None:
    sys.stdout.write(plain(text) + "\n")  # it may hold the name of a file
    sys.stdout.flush()
