"""Pieces of a reply put together."""

import random

import pytest

from ds4agent.server.api.gathered import Gathered, joined
from engine.chat.format import CallArguments, Text, Thinking
from tests.server.api.test_reply_properties import random_reply


@pytest.mark.parametrize("seed", range(50))
def test_joined_pieces_say_the_same_in_as_few_as_can_be(seed: int) -> None:
    pieces, _ = random_reply(random.Random(seed))
    together = joined(pieces)
    whole, fewer = Gathered(), Gathered()
    for piece in pieces:
        whole.add(piece)
    for piece in together:
        fewer.add(piece)
    assert (fewer.thinking, fewer.text) == (whole.thinking, whole.text)
    assert [(c.call_id, c.arguments, c.is_whole) for c in fewer.calls] == [
        (c.call_id, c.arguments, c.is_whole) for c in whole.calls
    ]
    assert len(together) <= 2 + 3 * len(whole.calls)
    assert joined(together) == together


def test_arguments_of_two_calls_stay_apart() -> None:
    pieces = [Thinking("a"), Text("b"), CallArguments(0, "c"), CallArguments(1, "d")]
    assert joined(pieces) == pieces
