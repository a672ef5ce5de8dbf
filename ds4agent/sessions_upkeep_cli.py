"""Actions of ``sessions`` that read or rewrite whole files: verify, strip, gc."""

import argparse
import json
import re
import sys

from ds4agent.config import kvcache_folder
from ds4agent.errors import UsageError

_SHORT_ID = 8  # digits
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(?:i?[bB])?")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def add_actions(actions) -> None:
    """Add the actions to ``sessions``."""
    verifying = actions.add_parser("verify", help="read every byte and say what is damaged")
    verifying.add_argument("id", nargs="?", default="", metavar="ID", help="only this one")
    verifying.add_argument("--json", action="store_true", help="one JSON object a line")
    verifying.set_defaults(run=verify_sessions)
    stripping = actions.add_parser("strip", help="keep the text of one and drop its state")
    stripping.add_argument("id", metavar="ID", help="the first digits of its id")
    stripping.add_argument("--yes", action="store_true", help="do not ask")
    stripping.set_defaults(run=strip_session)
    making_room = actions.add_parser(
        "gc", help="make room: drop the states that are worth least, keep every text"
    )
    making_room.add_argument(
        "--budget",
        type=size,
        metavar="SIZE",
        required=True,
        help="what all files may take together, e.g. 20G",
    )
    making_room.add_argument("--dry-run", action="store_true", help="only say what would go")
    making_room.add_argument("--yes", action="store_true", help="do not ask")
    making_room.set_defaults(run=make_room)


def size(text: str) -> int:
    """Read a number of bytes: ``500M``, ``20G``, ``1.5 GiB``; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, expected e.g. 500M or 20G")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].lower()])


def verify_sessions(args: argparse.Namespace) -> int:
    """Read files whole; 1 when one of them is damaged."""
    from ds4agent.plain import one_line
    from sessions import upkeep
    from sessions.store import SessionStore

    n_bad = n_sound = 0
    for found in upkeep.verify(SessionStore(kvcache_folder()), args.id):
        n_bad += bool(found.problem)
        n_sound += not found.problem
        if args.json:
            row = {"id": found.id, "path": str(found.path), "problem": found.problem}
            row |= {"has_checksum": found.has_checksum, "file_bytes": found.n_bytes}
            _say(json.dumps(row, ensure_ascii=False))
            continue
        told = found.problem and f"DAMAGED: {found.problem}"
        told = told or ("sound" if found.has_checksum else "sound as far as can be seen")
        _say(f"{found.id[:_SHORT_ID]}  {told}  {one_line(found.title, 60)}".rstrip())
    if not args.json:
        _say(f"{n_sound} sound, {n_bad} damaged")
    return 1 if n_bad else 0


def strip_session(args: argparse.Namespace) -> int:
    """Drop the state of one conversation after a question."""
    from ds4agent.plain import one_line
    from sessions import upkeep
    from sessions.store import SessionStore

    store = SessionStore(kvcache_folder())
    record = store.find(args.id)
    label = one_line(record.label, 60)
    question = (
        f"drop the state of {record.id[:_SHORT_ID]} {label!r}? "
        f"Going on will read its {record.tokens} tokens again."
    )
    if not args.yes and not agreed(question):
        _say("nothing was changed")
        return 0
    _, freed = upkeep.strip(store, record.id)
    _say(f"{record.id[:_SHORT_ID]} {label!r}: {freed / 1e6:,.1f} MB are free")
    return 0


def make_room(args: argparse.Namespace) -> int:
    """Drop what is worth least until the rest fits; 1 when it does not fit even then."""
    from ds4agent.plain import one_line
    from sessions import budget
    from sessions.store import SessionStore

    store = SessionStore(kvcache_folder())
    plan = budget.plan(store, args.budget)
    _say(f"all files take {plan.total_bytes / 1e6:,.1f} MB, allowed are {args.budget / 1e6:,.1f}")
    for entry in plan.victims:
        name = one_line(entry.label, 60) if entry.is_session else "(cache of a server)"
        _say(f"  {entry.id[:_SHORT_ID]}  {entry.n_bytes / 1e6:>10,.1f} MB  {name}")
    for entry in plan.kept:
        _say(f"  {entry.id[:_SHORT_ID]}  kept: {entry.kept_because}  {one_line(entry.label, 60)}")
    if plan.victims and not args.dry_run:
        question = (
            f"drop {len(plan.victims)} states ({plan.freed_bytes / 1e6:,.1f} MB)? Texts are kept."
        )
        if args.yes or agreed(question):
            freed = budget.carry_out(
                store,
                plan.victims,
                lambda entry, why: sys.stderr.write(
                    f"ds4-agent: {entry.id[:_SHORT_ID]} stays: {why}\n"
                ),
            )
            _say(f"{freed / 1e6:,.1f} MB are free")
        else:
            _say("nothing was changed")
    elif not plan.victims and plan.is_enough:
        _say("nothing has to go")
    if not plan.is_enough:
        _say("what is left takes more than that: unpin or close some of it")
    return 0 if plan.is_enough else 1


def agreed(question: str) -> bool:
    """Ask a person.

    Raises:
        UsageError: nobody is there to be asked.
    """
    if not sys.stdin.isatty():
        raise UsageError("this needs a yes", "Add --yes.")
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
