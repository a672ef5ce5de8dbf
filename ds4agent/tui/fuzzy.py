"""Finding a name by some of its letters."""

import re
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import TypeVar

Item = TypeVar("Item")


def subsequence(letters: str) -> re.Pattern[str]:
    """Return a pattern that finds these letters in this order, with anything between them."""
    gaps = (f"[^{re.escape(letter)}]*{re.escape(letter)}" for letter in letters[1:])
    return re.compile(re.escape(letters[:1]) + "".join(gaps), re.DOTALL)


def rank(query: str, text: str, name_start: int = 0) -> int | None:
    """Say how well ``text`` fits ``query``, both in one case: 0 is best, None is not at all.

    0: its last part (from ``name_start`` on) begins so, or the text, for a query with a slash;
    1: the last part has it; 2: the text has it; 3: its letters come in this order.
    """
    if text.startswith(query, 0 if "/" in query else name_start):
        return 0
    found = text.rfind(query)
    if found >= 0:
        return 1 if found >= name_start else 2
    return 3 if subsequence(query).search(text) else None


def best(
    query: str,
    items: Iterable[Item],
    text_of: Callable[[Item], str],
    order: Callable[[Item], tuple],
    limit: int,
) -> list[Item]:
    """Return the best fitting items; equally good ones by ``order``, smallest first."""
    pattern = subsequence(query) if query else None
    fitting = []
    for number, item in enumerate(items):
        text = text_of(item)
        if pattern is not None and not pattern.search(text):
            continue
        found = rank(query, text, text.rstrip("/").rfind("/") + 1)
        fitting.append((found, order(item), number, item))
    return [item for *_, item in nsmallest(limit, fitting)]
