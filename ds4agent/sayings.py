"""Events in words: what every screen says of them in the same way."""

from ds4agent.events import Compacted, FilesRestored, PermissionList, Ready, TurnEnded
from ds4agent.readable import count, one_line, visible

_MAX_PATHS = 12  # named one by one


def ready_line(event: Ready) -> str:
    """How a conversation was opened."""
    if not event.history:
        return f"{event.cwd or 'ready'} · type a message, /help for commands and keys"
    title = f"“{one_line(event.title)}”" if event.title else "a conversation"
    if event.prefilled_tokens:
        how = f"{count(event.prefilled_tokens, 'token')} read again"
    else:
        how = "nothing read again"
    return f"Opened {title}: {count(event.context_tokens, 'token')}, {how}, {event.seconds:.1f} s"


def compacted_lines(event: Compacted) -> str:
    """What compaction did."""
    kept = f" /load {event.kept_id[:8]} opens what was before." if event.kept_id else ""
    line = (
        f"Compacted: {event.tokens_before:,} tokens are now {event.tokens_after:,}, "
        f"{event.seconds:.1f} s.{kept}"
    )
    return f"{line}\n{visible(event.summary)}" if event.summary else line


def restored_lines(event: FilesRestored) -> str:
    """Which files went back."""
    line = f"{event.action.capitalize()}: {one_line(event.title)}\n"
    line += "\n".join(f"  {one_line(path)}" for path in event.paths[:_MAX_PATHS])
    if len(event.paths) > _MAX_PATHS:
        line += f"\n  and {len(event.paths) - _MAX_PATHS} more"
    if event.not_covered:
        line += f"\nNot covered, so left as they are: {one_line(', '.join(event.not_covered))}"
    return line


def permission_lines(event: PermissionList) -> str:
    """The rules, one a line."""
    if not event.entries:
        return "There are no rules here. /permissions allow bash(make test) makes one."
    return "\n".join(
        f"{entry.verdict:6} {one_line(entry.rule)}  ({one_line(entry.origin)})"
        for entry in event.entries
    )


def usage_line(event: TurnEnded, took_s: float) -> str:
    """What a turn cost."""
    usage = event.usage
    parts = [count(usage.generated_tokens, "token")]
    if usage.generate_seconds > 0:
        parts.append(f"{usage.generated_tokens / usage.generate_seconds:.1f} tok/s")
    if usage.prefilled_tokens:
        parts.append(f"{usage.prefilled_tokens:,} read")
    return " · ".join([*parts, f"{took_s:.1f} s"])
