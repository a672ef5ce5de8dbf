"""Hashing and narrowing beside the disk: in order, and also where there are no more threads."""

import hashlib
import threading

import pytest

from sessions.streams import Aside, BackgroundDigest, pieces_of

PIECES = [bytes([n]) * (1 << 17) for n in range(30)]


@pytest.mark.parametrize("failures", [{0}, {0, 1, 5}, set(range(100))])
def test_threads_that_cannot_be_started_cost_time_and_nothing_else(monkeypatch, failures) -> None:
    plain, n_started = threading.Thread.start, 0

    def start(thread: threading.Thread) -> None:
        nonlocal n_started
        n_started += 1
        if n_started - 1 in failures:
            raise RuntimeError("can't start new thread")
        plain(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    digest = BackgroundDigest(hashlib.sha256())
    for piece in PIECES:
        digest.update(piece)
        digest.update(b"short")
    expected = hashlib.sha256(b"".join(piece + b"short" for piece in PIECES))
    assert digest.hexdigest() == expected.hexdigest()
    assert n_started > 1


def test_what_a_call_raises_ends_the_wait_and_the_thread() -> None:
    aside, done = Aside("ds4-test"), []

    def fail() -> None:
        raise MemoryError

    aside.submit(done.append, 1)
    aside.submit(fail)
    with pytest.raises(MemoryError):
        aside.close()
    assert done == [1]
    assert not [t for t in threading.enumerate() if t.name.startswith("ds4-test")]


def test_pieces_are_the_memory_itself() -> None:
    data = bytes(range(10))
    assert [bytes(piece) for piece in pieces_of(data, 4)] == [data[:4], data[4:8], data[8:]]
    assert list(pieces_of(b"", 4)) == []
