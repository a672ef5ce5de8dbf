"""The subcommand ``sessions``: look at saved conversations, name, keep and delete them."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ds4agent import sessions_transfer_cli, sessions_upkeep_cli
from ds4agent.config import kvcache_folder
from ds4agent.errors import UsageError

if TYPE_CHECKING:
    from sessions.record import SessionRecord
    from sessions.store import SessionStore

_TITLE_WIDTH = 44
_SHORT_ID = 8  # digits
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def add_parser(subparsers) -> None:
    """Add ``sessions`` and its actions to the command line."""
    parser = subparsers.add_parser("sessions", help="look at saved conversations and care for them")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="saved conversations, last used first")
    listing.add_argument("--here", action="store_true", help="only those of this folder")
    _add_json(listing)
    listing.set_defaults(run=list_sessions)
    searching = actions.add_parser("search", help="those whose title, folder or text has the words")
    searching.add_argument("words", nargs="+", metavar="WORD", help="all of them must occur")
    _add_json(searching)
    searching.set_defaults(run=search_sessions)
    showing = actions.add_parser("show", help="what is known about one, and its text")
    _add_id(showing)
    _add_json(showing)
    showing.set_defaults(run=show_session)
    renaming = actions.add_parser("rename", help="give one a name")
    _add_id(renaming)
    renaming.add_argument("name", nargs="+", metavar="NAME", help='"" brings its title back')
    renaming.set_defaults(run=rename_session)
    forking = actions.add_parser("fork", help="make a second one that shares its file")
    _add_id(forking)
    forking.add_argument("name", nargs="*", metavar="NAME", help="default: fork of its title")
    forking.set_defaults(run=fork_session)
    for name, told, is_pinned in (
        ("pin", "never remove one to make room", True),
        ("unpin", "let it be removed to make room again", False),
    ):
        pinning = actions.add_parser(name, help=told)
        _add_id(pinning)
        pinning.set_defaults(run=pin_session, is_pinned=is_pinned)
    deleting = actions.add_parser("delete", help="remove one for good")
    _add_id(deleting)
    deleting.add_argument("--yes", action="store_true", help="do not ask")
    deleting.set_defaults(run=delete_session)
    sessions_upkeep_cli.add_actions(actions)
    sessions_transfer_cli.add_actions(actions)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the first digits of its id")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def list_sessions(args: argparse.Namespace) -> int:
    """Print the saved conversations."""
    from sessions.store import SessionStore

    store = SessionStore(kvcache_folder())
    records = store.list()
    if args.here:
        records = [record for record in records if record.cwd == str(Path.cwd())]
    if not records and not args.json:
        _say(f"no saved conversations in {store.folder}")
    for record in records:
        _say(json.dumps(_facts(record), ensure_ascii=False) if args.json else _row(record))
    _tell_damaged(store)
    return 0


def search_sessions(args: argparse.Namespace) -> int:
    """Print the conversations that hold all words, and the text around the first of them."""
    from ds4agent.plain import one_line
    from sessions import upkeep
    from sessions.store import SessionStore

    store = SessionStore(kvcache_folder())
    n_found = 0
    for hit in upkeep.search(store, " ".join(args.words)):
        n_found += 1
        snippet = one_line(hit.snippet)
        if args.json:
            _say(json.dumps(_facts(hit.record) | {"snippet": snippet}, ensure_ascii=False))
        else:
            _say(_row(hit.record) + (f"\n          {snippet}" if snippet else ""))
    if not n_found and not args.json:
        _say("no saved conversation has all of these words")
    _tell_damaged(store)
    return 0 if n_found else 1


def show_session(args: argparse.Namespace) -> int:
    """Print the facts of one conversation, then its text with the markup of its model."""
    from ds4agent.plain import one_line, plain
    from sessions.checkpoint import opened
    from sessions.store import SessionStore

    record = SessionStore(kvcache_folder()).find(args.id)
    with opened(record.path) as checkpoint:
        text = plain(checkpoint.text().decode("utf-8", "replace"))
    if args.json:
        _say(json.dumps(_facts(record) | {"text": text}, ensure_ascii=False))
        return 0
    marks = ", ".join(_marks(record).values())
    _say(f"id       {record.id}" + (f" ({marks})" if marks else ""))
    if record.name:
        _say(f"name     {one_line(record.name)}")
    _say(f"title    {one_line(record.title)}")
    _say(f"folder   {one_line(record.cwd) or 'unknown'}")
    weights = record.fingerprint[:_SHORT_ID] or "unknown"
    _say(f"model    {one_line(record.model) or 'unknown'} (weights {weights})")
    _say(f"tokens   {record.tokens} (context {record.ctx})")
    _say(f"file     {record.path} ({record.file_bytes:,} bytes)")
    _say(f"created  {_date(record.created_at)}, last used {_date(record.last_used)}")
    _say("")
    _say(text)
    return 0


def rename_session(args: argparse.Namespace) -> int:
    """Give one conversation a name."""
    from ds4agent.plain import one_line
    from sessions import upkeep
    from sessions.store import SessionStore

    record = upkeep.rename(SessionStore(kvcache_folder()), args.id, " ".join(args.name))
    _say(f"{record.id[:_SHORT_ID]} is called {one_line(record.label)!r}")
    return 0


def fork_session(args: argparse.Namespace) -> int:
    """Make a fork of one conversation."""
    from ds4agent.plain import one_line
    from sessions.fork import fork
    from sessions.store import SessionStore

    child = fork(SessionStore(kvcache_folder()), args.id, " ".join(args.name))
    _say(f"{child.id[:_SHORT_ID]} {one_line(child.label)!r}: {child.tokens} tokens")
    return 0


def pin_session(args: argparse.Namespace) -> int:
    """Pin one conversation, or no longer."""
    from ds4agent.plain import one_line
    from sessions import upkeep
    from sessions.store import SessionStore

    record = upkeep.set_pinned(SessionStore(kvcache_folder()), args.id, args.is_pinned)
    told = "stays when room is made" if record.is_pinned else "may go when room is made"
    _say(f"{record.id[:_SHORT_ID]} {one_line(record.label, 60)!r} {told}")
    return 0


def delete_session(args: argparse.Namespace) -> int:
    """Remove one conversation after a question, a damaged one too."""
    from ds4agent.plain import one_line
    from sessions.errors import CheckpointError
    from sessions.store import SessionStore

    store = SessionStore(kvcache_folder())
    try:
        record = store.find(args.id)
        identifier, title = record.id, one_line(record.label, 60)
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


def _facts(record: "SessionRecord") -> dict[str, object]:
    """What a program wants to know about a conversation."""
    return {
        "id": record.id,
        "title": record.label,
        "cwd": record.cwd,
        "model": record.model,
        "fingerprint": record.fingerprint,
        "tokens": record.tokens,
        "ctx": record.ctx,
        "file_bytes": record.file_bytes,
        "created_at": record.created_at,
        "last_used": record.last_used,
        "is_pinned": record.is_pinned,
        "is_stripped": record.is_stripped,
        "open_in": record.open_in,
    }


def _row(record: "SessionRecord") -> str:
    """``9f3a01bc    3m    1234 tokens     12.3 MB  p o  Fix the build    /home/me/project``"""
    from ds4agent.plain import one_line

    letters = "".join(_marks(record))
    size = f"{record.file_bytes / 1e6:.1f} MB"
    return (
        f"{record.id[:_SHORT_ID]}  {_age(record.last_used):>4}  {record.tokens:>7} tokens  "
        f"{size:>10}  {letters:3} {one_line(record.label, _TITLE_WIDTH):{_TITLE_WIDTH}}  "
        f"{one_line(record.cwd)}"
    ).rstrip()


def _marks(record: "SessionRecord") -> dict[str, str]:
    """A letter for a row, and what it means."""
    marks = {}
    if record.is_pinned:
        marks["p"] = "pinned"
    if record.is_stripped:
        marks["s"] = "stripped: its text is kept and its state is not"
    if record.open_in:
        marks["o"] = f"open in {record.open_in}"
    return marks


def _tell_damaged(store: "SessionStore") -> None:
    for damaged in store.damaged:
        sys.stderr.write(f"ds4-agent: left out {damaged.path.name}: {damaged.reason}\n")


def _age(last_used: int) -> str:
    seconds = max(0, int(time.time()) - last_used)
    size, unit = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{seconds // size}{unit}"


def _date(unix_seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_seconds))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
