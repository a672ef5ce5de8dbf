"""When a server saves what: the recorded numbers of antirez/ds4."""

import pytest

from ds4agent.server.checkpoint_policy import CheckpointPolicy
from engine.chat.format import TurnStart

LENGTHS = {
    **{511: 511, 512: 512, 544: 544, 545: 545, 1695: 1695, 2079: 2079, 2080: 2048, 2592: 2048},
    **{4127: 2048, 4128: 4096, 11011: 10240, 12288: 10240, 30000: 28672},
}
STEPS = {0: 0, 1: 2048, 2048: 2048, 4096: 4096, 5000: 6144, 10000: 10240, 20000: 20480}


@pytest.mark.parametrize(("n_tokens", "expected"), LENGTHS.items())
def test_store_length(n_tokens: int, expected: int) -> None:
    assert CheckpointPolicy().store_length(n_tokens) == expected


@pytest.mark.parametrize(("interval", "expected"), STEPS.items())
def test_step(interval: int, expected: int) -> None:
    assert CheckpointPolicy(continued_interval=interval).step == expected


def turns(*starts: tuple[int, str]) -> list[TurnStart]:
    return [TurnStart(position, role) for position, role in starts]


def test_the_anchor_is_before_the_first_question() -> None:
    policy = CheckpointPolicy()
    asked = turns((0, "system"), (900, "user"), (1000, "assistant"), (1200, "user"))
    assert policy.cold_length(1300, asked) == 900
    assert policy.cold_length(1300, turns((0, "system"), (100, "user"), (900, "assistant"))) == 1300
    assert policy.cold_length(511, asked) == 0
    assert policy.cold_length(30_001, asked) == 0
    assert CheckpointPolicy(cold_max_tokens=0).cold_length(1300, asked) == 0


def test_continued_checkpoints_are_multiples_of_the_step() -> None:
    policy = CheckpointPolicy()
    assert [policy.next_continued(n) for n in (0, 10_239, 10_240, 20_481)] == [
        *(10_240, 10_240, 20_480, 30_720)
    ]
    assert CheckpointPolicy(continued_interval=0).next_continued(5) == 0
