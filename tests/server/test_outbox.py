"""What lies between the engine's thread and a reader: nothing waits for ever on either side."""

import asyncio

import pytest

from ds4agent.server.outbox import Outbox, Unread


@pytest.mark.parametrize("n_steps", range(6))
async def test_a_cancelled_taker_ends(n_steps: int) -> None:
    """Whenever the cancellation comes, between an item's arrival and the moment it is taken."""
    for timeout_s in (None, 60.0):
        outbox = Outbox(asyncio.get_running_loop())
        taker = asyncio.create_task(outbox.take(timeout_s))
        await asyncio.sleep(0.001)
        outbox.put("item")
        for _ in range(n_steps):
            await asyncio.sleep(0)
        if taker.cancel():
            with pytest.raises(asyncio.CancelledError):
                await taker
        else:
            assert taker.result() == ["item"]


async def test_a_taker_that_is_too_far_behind_is_told() -> None:
    outbox = Outbox(asyncio.get_running_loop(), max_pending=100)
    outbox.put("first", 60)
    assert await outbox.take(60) == ["first"]
    waiting = asyncio.create_task(outbox.take(60))
    await asyncio.sleep(0.001)
    outbox.put("second", 60)
    outbox.put("third", 60)
    assert outbox.cancel.is_set()
    with pytest.raises(Unread):
        await asyncio.wait_for(waiting, 10)
    outbox.put("late")
    with pytest.raises(Unread):
        await outbox.take(60)


async def test_nothing_comes_within_the_time() -> None:
    outbox = Outbox(asyncio.get_running_loop())
    assert await outbox.take(0.01) == []
    assert not outbox.cancel.is_set()
