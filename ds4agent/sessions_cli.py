"""The subcommand ``sessions``: list, show and delete saved conversations."""

import argparse
import json
import sys
import time
from pathlib import Path

from ds4agent import paths
from ds4agent.errors import UsageError

_TITLE_WIDTH = 44
_SHORT_ID = 8  # digits
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def add_parser(subparsers) -> None:
    """Add ``sessions`` and its actions to the command line."""
    parser = subparsers.add_parser("sessions", help="list, show or delete saved conversations")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="saved conversations, last used first")
    listing.add_argument("--here", action="store_true", help="only those of this folder")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    listing.set_defaults(run=list_sessions)
    showing = actions.add_parser("show", help="what is known about one, and its text")
    showing.add_argument("id", metavar="ID", help="the first digits of its id")
    showing.set_defaults(run=show_session)
    deleting = actions.add_parser("delete", help="remove one for good")
    deleting.add_argument("id", metavar="ID", help="the first digits of its id")
    deleting.add_argument("--yes", action="store_true", help="do not ask")
    deleting.set_defaults(run=delete_session)


def list_sessions(args: argparse.Namespace) -> int:
    """Print the saved conversations."""
    from ds4agent.agent.archive import session_list
    from ds4agent.plain import one_line
    from sessions.store import SessionStore

    store = SessionStore(paths.kvcache_dir())
    sessions = session_list(store, "").sessions
    if args.here:
        sessions = tuple(s for s in sessions if s.cwd == str(Path.cwd()))
    if args.json:
        for s in sessions:
            row = {"id": s.id, "title": s.title, "cwd": s.cwd, "model": s.model}
            row |= {"tokens": s.tokens, "file_bytes": s.file_bytes}
            row |= {"created_at": s.created_at, "last_used": s.last_used}
            _say(json.dumps(row, ensure_ascii=False))
    elif not sessions:
        _say(f"no saved conversations in {store.folder}")
    else:
        for s in sessions:
            title = s.title if len(s.title) <= _TITLE_WIDTH else s.title[: _TITLE_WIDTH - 1] + "…"
            size = f"{s.file_bytes / 1e6:.1f} MB"
            _say(
                f"{s.id[:_SHORT_ID]}  {_age(s.last_used):>4}  {s.tokens:>7} tokens  {size:>10}  "
                f"{title:{_TITLE_WIDTH}}  {one_line(s.cwd)}".rstrip()
            )
    for damaged in store.damaged:
        sys.stderr.write(f"ds4-agent: left out {damaged.path.name}: {damaged.reason}\n")
    return 0


def show_session(args: argparse.Namespace) -> int:
    """Print the facts of one conversation, then its text with the markup of its model."""
    from ds4agent.plain import one_line, plain
    from sessions.checkpoint import opened
    from sessions.store import SessionStore

    record = SessionStore(paths.kvcache_dir()).find(args.id)
    _say(f"id       {record.id}")
    _say(f"title    {one_line(record.title)}")
    _say(f"folder   {one_line(record.cwd) or 'unknown'}")
    _say(
        f"model    {one_line(record.model) or 'unknown'} (weights {record.fingerprint[:_SHORT_ID]})"
    )
    _say(f"tokens   {record.tokens} (context {record.ctx})")
    _say(f"file     {record.path} ({record.file_bytes:,} bytes)")
    _say(f"created  {_date(record.created_at)}, last used {_date(record.last_used)}")
    _say("")
    with opened(record.path) as checkpoint:
        _say(plain(checkpoint.text().decode("utf-8", "replace")))
    return 0


def delete_session(args: argparse.Namespace) -> int:
    """Remove one conversation after a question, a damaged one too."""
    from ds4agent.plain import one_line
    from sessions.errors import CheckpointError
    from sessions.store import SessionStore

    store = SessionStore(paths.kvcache_dir())
    try:
        record = store.find(args.id)
        identifier, title = record.id, one_line(record.title, 60)
    except CheckpointError:
        identifier, title = store.whole_id(args.id), "damaged"
    if not args.yes:
        if not sys.stdin.isatty():
            raise UsageError("a deletion needs a yes", "Add --yes.")
        sys.stdout.write(f"delete {identifier[:_SHORT_ID]} {title!r}? [y/N] ")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            _say("nothing was deleted")
            return 0
    with store.open_lock(identifier):  # not while another program has it open
        store.delete(identifier)
    _say(f"deleted {identifier}")
    return 0


def _age(last_used: int) -> str:
    seconds = max(0, int(time.time()) - last_used)
    size, unit = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{seconds // size}{unit}"


def _date(unix_seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_seconds))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
