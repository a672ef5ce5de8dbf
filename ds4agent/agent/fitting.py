"""Results of calls, cut until they fit into what is left of the context."""

from collections.abc import Callable, Sequence

from ds4agent.agent.waiting import Result
from engine.chat.format import Item, ToolResults

_RESULT_HEAD = 400  # characters of a result that survive an interrupt: the person waits
_TRIES = 8
Render = Callable[[Sequence[Item]], list[int]]


def fitting(
    render: Render, results: Sequence[Result], after: Sequence[Item], added: str, room: int
) -> list[int] | None:
    """Render results, the longest cut until all of it fits.

    Args:
        render: of the conversation.
        results: of the calls of one answer, not empty.
        after: what follows them.
        added: stands behind the last result when nothing follows.
        room: tokens.

    Returns:
        The tokens; None when they cannot be made to fit.
    """
    shown = list(results)
    for _ in range(_TRIES):
        name, text = shown[-1]
        last = (name, text + added) if not after else shown[-1]
        tokens = render([ToolResults((*shown[:-1], last)), *after])
        if len(tokens) <= room:
            return tokens
        i = max(range(len(shown)), key=lambda k: len(shown[k][1]))
        name, text = shown[i]
        # Characters that have to go, at the measured density, with a margin.
        density = max(1.0, sum(len(t) for _, t in shown) / len(tokens))
        keep = len(text) - int((len(tokens) - room) * density * 1.1) - 120
        note = f"\n(cut: {len(text)} characters do not fit into the context; read less)"
        shown[i] = (name, _cut(text, max(keep, 0), note))
    return None


def shortened(render: Render, results: Sequence[Result], room: int) -> list[int]:
    """Render the beginnings of results, which are quick to read, as long as there is room."""
    tokens: list[int] = []
    for limit in (_RESULT_HEAD, 40, 12):
        tokens = render([ToolResults(tuple((name, _cut(text, limit)) for name, text in results))])
        if len(tokens) <= room:
            break
    return tokens


def _cut(text: str, limit: int, note: str = " (cut)") -> str:
    return text if len(text) <= limit else text[:limit] + note
