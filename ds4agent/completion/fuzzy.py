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
    found = _rank_of_fitting(query, text, name_start)
    return found if found < 3 or subsequence(query).search(text) else None


def best(
    query: str,
    items: Iterable[Item],
    text_of: Callable[[Item], str],
    order: Callable[[Item], tuple],
    limit: int,
) -> list[Item]:
    """Return the best of items that all fit; equally good ones by ``order``, smallest first.

    Only items of the ranks that are needed are put in order: a key must not wait for thousands.
    """
    ranks: list[list[Item]] = [[], [], [], []]
    for item in items:
        text = text_of(item)
        name_start = text.rfind("/", 0, len(text) - 1) + 1
        ranks[_rank_of_fitting(query, text, name_start)].append(item)
    found: list[Item] = []
    for same in ranks:
        found += nsmallest(limit - len(found), same, key=order)
        if len(found) == limit:
            break
    return found


def _rank_of_fitting(query: str, text: str, name_start: int) -> int:
    if text.startswith(query, 0 if "/" in query else name_start):
        return 0
    found = text.rfind(query)
    if found < 0:
        return 3
    return 1 if found >= name_start else 2
