"""Actions of ``sessions`` that move a conversation to another machine: export, import."""

import argparse
import getpass
import importlib.metadata
import os
import sys
import time
from pathlib import Path

from ds4agent.config import kvcache_folder
from ds4agent.errors import UsageError

_SHORT_ID = 8  # digits
_VARIABLE = "DS4_PASSPHRASE"
_STEP_S = 0.5  # between two lines of progress on a terminal


def add_actions(actions) -> None:
    """Add the actions to ``sessions``."""
    exporting = actions.add_parser("export", help="write one to a file for another machine")
    exporting.add_argument("id", metavar="ID", help="the first digits of its id")
    exporting.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: ID.ds4session here"
    )
    _add_passphrase(exporting)
    exporting.set_defaults(run=export_session)
    importing = actions.add_parser("import", help="take one from such a file")
    importing.add_argument("file", type=Path, metavar="FILE")
    importing.add_argument(
        "--copy", action="store_true", help="make a second one where it is here already"
    )
    importing.add_argument("--here", action="store_true", help="it belongs to this folder now")
    _add_passphrase(importing)
    importing.set_defaults(run=import_session)


def _add_passphrase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--passphrase",
        action="store_true",
        help=f"ask for a passphrase, or take it from {_VARIABLE}",
    )


def export_session(args: argparse.Namespace) -> int:
    """Write one conversation to a file."""
    from ds4agent.plain import one_line
    from sessions import transfer
    from sessions.sealed import require_cryptography
    from sessions.store import SessionStore

    if args.passphrase:
        require_cryptography()
    exported = transfer.export_session(
        SessionStore(kvcache_folder()),
        args.id,
        args.output,
        passphrase=_passphrase(is_new=True) if args.passphrase else "",
        program=f"ds4-agent {importlib.metadata.version('ds4-agent')}",
        progress=_Progress("export"),
    )
    record = exported.record
    _say(
        f"{one_line(str(exported.path))}: {record.tokens} tokens of {one_line(record.label, 60)!r} "
        f"in {exported.n_bytes / 1e6:,.1f} MB ({record.file_bytes / 1e6:,.1f} here)"
    )
    return 0


def import_session(args: argparse.Namespace) -> int:
    """Take one conversation from a file."""
    from ds4agent.plain import one_line
    from sessions import transfer
    from sessions.sealed import require_cryptography
    from sessions.store import SessionStore

    is_sealed = transfer.needs_passphrase(args.file)
    if is_sealed:
        require_cryptography()
    record = transfer.import_session(
        SessionStore(kvcache_folder()),
        args.file,
        passphrase=_passphrase(is_new=False) if is_sealed else "",
        as_copy=args.copy,
        cwd=str(Path.cwd()) if args.here else "",
        progress=_Progress("import"),
    )
    weights = f"{one_line(record.model) or 'unknown'}, weights {record.fingerprint[:_SHORT_ID]}"
    _say(f"{record.id[:_SHORT_ID]} {one_line(record.label, 60)!r}: {record.tokens} tokens")
    _say(f"made with {weights}; `ds4-agent --resume {record.id[:_SHORT_ID]}` goes on with it")
    return 0


def _passphrase(*, is_new: bool) -> str:
    """Return what a person types, unseen, or what the environment says.

    Raises:
        UsageError: there is none, or it was not typed twice alike.
    """
    given = os.environ.get(_VARIABLE, "")
    if given:
        return given
    if not sys.stdin.isatty():
        raise UsageError("a passphrase needs a terminal to ask on", f"Set {_VARIABLE}.")
    typed = getpass.getpass("passphrase: ")
    if not typed:
        raise UsageError("an empty passphrase protects nothing", "Type one.")
    if is_new and getpass.getpass("again: ") != typed:
        raise UsageError("the two passphrases differ", "Try again.")
    return typed


class _Progress:
    """Tells large files on a terminal, twice a second."""

    def __init__(self, action: str) -> None:
        self._action = action
        self._next_s = time.monotonic() + _STEP_S
        self._is_shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if not self._is_shown or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _STEP_S
        sys.stderr.write(f"\r{self._action}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB\x1b[K\r")
        sys.stderr.flush()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
