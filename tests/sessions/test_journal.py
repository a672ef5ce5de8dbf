"""The journal's bytes: as they are described, cut anywhere, changed anywhere."""

import hashlib
import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from sessions import journal
from sessions.journal import Base, Boundary, JournalError
from sessions.journal_writer import JournalWriter
from tests.sessions.deltas import since, text_of, whole

BASE = Base(
    "1000-abcd", 2, journal.tokens_sha256((1, 2)), 4, (Boundary(2, 77, "turn"),), ({"a": 1},)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.kv.journal"


def add(writer: JournalWriter, n_tokens: int, kept: int, kind: str = "turn", events=()) -> int:
    state = whole(n_tokens)
    return writer.append(
        since(state, kept),
        text_of(state.tokens[kept:]),
        2 * kept,
        kind=kind,
        at=1000 + n_tokens,
        tokens_sha256=journal.tokens_sha256(state.tokens),
        events=events,
    )


@pytest.fixture
def data(path: Path) -> bytes:
    """A base, then 2 -> 5 -> 4 -> 9 tokens."""
    writer = JournalWriter.create(path, BASE)
    add(writer, 5, 2, "result")
    add(writer, 4, 3, events=[{"tool": "read", "ok": True}])
    add(writer, 9, 4)
    writer.close()
    return path.read_bytes()


def test_bytes_are_as_described(path: Path) -> None:
    """Parsed here once more, from the description alone."""
    writer = JournalWriter.create(path, BASE)
    state = whole(5)
    n_bytes = add(writer, 5, 2, "result", [{"x": "ü"}])
    data = path.read_bytes()
    assert data[:8] == b"DS4JRNL\x01"
    at, digest, heads = 8, bytes(32), []
    for _ in range(2):
        magic, n_head, n_body = struct.unpack_from("<4sIQ", data, at)
        assert magic == b"REC1"
        end = at + 16 + n_head + n_body
        assert data[end : end + 32] == hashlib.sha256(digest + data[at:end]).digest()
        digest = data[end : end + 32]
        heads.append(json.loads(data[at + 16 : at + 16 + n_head]))
        body, start, at = data[at + 16 + n_head : end], at, end + 32
    assert (at, at - start) == (len(data), n_bytes)
    assert heads[0] == {
        "kind": "base",
        "stamp": "1000-abcd",
        "tokens": 2,
        "tokens_sha256": hashlib.sha256(struct.pack("<II", 1, 2)).hexdigest(),
        "text_bytes": 4,
        "boundaries": [[2, 77, "turn"]],
        "events": [{"a": 1}],
    }
    assert heads[1] == {
        "kind": "result",
        "at": 1005,
        "keep": 2,
        "tokens": 5,
        "keep_text": 4,
        "text_bytes": 10,
        "tokens_sha256": hashlib.sha256(struct.pack("<5I", *state.tokens)).hexdigest(),
        "logits": 5,
        "arrays": [[f"layers.{i}.{part}", "<f2", 2, [3, 1, 2]] for i in (0, 1) for part in "kv"],
        "events": [{"x": "ü"}],
    }
    assert body == b"".join(
        [
            struct.pack("<3I", *state.tokens[2:]),
            text_of(state.tokens[2:]),
            state.logits.tobytes(),
            *(state.arrays[name][2:].tobytes() for name, *_ in heads[1]["arrays"]),
        ]
    )


def test_scan_gives_back_what_was_written(data: bytes) -> None:
    found = journal.scan(io.BytesIO(data))
    assert found.base == BASE
    assert (found.end, found.file_bytes, found.dropped) == (len(data), len(data), "")
    assert [(r.kind, r.keep, r.tokens) for r in found.records] == [
        ("result", 2, 5),
        ("turn", 3, 4),
        ("turn", 4, 9),
    ]
    # What was gone back before is no boundary any more.
    assert [b.tokens for b in found.boundaries] == [2, 4, 9]
    assert found.events == ({"a": 1}, {"tool": "read", "ok": True})
    assert found.max_tokens == 9


def test_cut_anywhere_the_records_before_the_cut_count(data: bytes) -> None:
    ends = [record.end for record in journal.scan(io.BytesIO(data)).records]
    first = journal.scan(io.BytesIO(data)).records[0]
    base_end = first.body - 16 - len(journal.pack_head(first.head()))
    for n_bytes in range(len(data)):
        for verify in (True, False):
            cut = io.BytesIO(data[:n_bytes])
            if n_bytes < base_end:
                with pytest.raises(JournalError):
                    journal.scan(cut, verify=verify)
                continue
            found = journal.scan(cut, verify=verify)
            n_whole = sum(end <= n_bytes for end in ends)
            assert len(found.records) == n_whole
            assert found.end == [base_end, *ends][n_whole]
            if found.end == n_bytes:
                assert found.dropped == ""
            else:
                assert "is cut off; its last" in found.dropped and "\n" not in found.dropped


def test_every_changed_byte_ends_the_valid_part_there(data: bytes) -> None:
    ends = [record.end for record in journal.scan(io.BytesIO(data)).records]
    first = journal.scan(io.BytesIO(data)).records[0]
    base_end = first.body - 16 - len(journal.pack_head(first.head()))
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x10
        if at < base_end:
            with pytest.raises(JournalError):
                journal.scan(io.BytesIO(changed))
            continue
        found = journal.scan(io.BytesIO(changed))
        assert len(found.records) == sum(end <= at for end in ends)
        assert found.dropped


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2), (0, 0, 1, 2), (2,)])
def test_moved_or_repeated_records_do_not_count(data: bytes, order: tuple[int, ...]) -> None:
    found = journal.scan(io.BytesIO(data))
    starts = [r.body - 16 - len(journal.pack_head(r.head())) for r in found.records]
    pieces = [data[start : r.end] for start, r in zip(starts, found.records, strict=True)]
    mixed = data[: starts[0]] + b"".join(pieces[i] for i in order)
    n_right = next((i for i, k in enumerate(order) if k != i), len(order))
    assert len(journal.scan(io.BytesIO(mixed)).records) == n_right


def test_a_record_of_another_journal_does_not_count(data: bytes, tmp_path: Path) -> None:
    other = tmp_path / "other.journal"
    writer = JournalWriter.create(other, Base("1-b", 2, "", 4))
    add(writer, 5, 2, "result")
    found = journal.scan(io.BytesIO(data))
    start = found.records[0].body - 16 - len(journal.pack_head(found.records[0].head()))
    theirs = other.read_bytes()
    their_start = len(theirs) - (found.records[0].end - start)
    mixed = data[:start] + theirs[their_start:]
    assert journal.scan(io.BytesIO(mixed)).records == ()


def forged(data: bytes, **changes: object) -> bytes:
    """Change the head of the first record and compute every digest of it anew."""
    record = journal.scan(io.BytesIO(data)).records[0]
    old = journal.pack_head(record.head())
    start = record.body - 16 - len(old)
    head = journal.pack_head({**record.head(), **changes})
    body = data[record.body : record.end - 32]
    made = struct.pack("<4sIQ", b"REC1", len(head), len(body)) + head + body
    return data[:start] + made + hashlib.sha256(data[start - 32 : start] + made).digest()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "base"}, "unknown kind"),
        ({"kind": 3}, "has no kind"),
        ({"keep": 3, "tokens": 5}, "keeps 3 of 2 tokens"),
        ({"keep": 0, "tokens": 0}, "ends with 0"),
        ({"keep": -1}, "the number -1"),
        ({"tokens": 6}, "its counts give"),
        ({"tokens": 1 << 60}, "the number"),
        ({"tokens": True}, "the number True"),
        ({"keep_text": 5}, "of text"),
        ({"text_bytes": 3}, "of text"),
        ({"logits": 1 << 39}, "its counts give"),
        ({"arrays": None}, "no list of arrays"),
        ({"arrays": [["a", "<f2", 0, []]]}, "has the array"),
        ({"arrays": [["a", "<f8", 0, [1]]]}, "has the array"),
        ({"arrays": [["a", "<f2", 0, [1 << 40] * 4]]}, "its counts give"),
        ({"arrays": [["a", "<f2", 0, [-1, -1]]]}, "the number -1"),
        ({"arrays": "ab"}, "no list of arrays"),
        ({"events": [1]}, "no list of events"),
        ({"tokens_sha256": None}, "no tokens_sha256"),
    ],
)
def test_a_record_with_a_right_checksum_is_checked_all_the_same(data, changes, told) -> None:
    found = journal.scan(io.BytesIO(forged(data, **changes)))
    assert found.records == () and told in found.dropped


def test_the_forger_of_these_tests_can_make_a_good_record(data: bytes) -> None:
    assert len(journal.scan(io.BytesIO(forged(data, at=5))).records) == 1


@pytest.mark.parametrize(
    "start", [b"", b"DS4JRNL", b"DS4JRNL\x02", b"KVC\x01aaaa", b"DS4JRNL\x01REC1", bytes(64)]
)
def test_what_is_no_journal_is_refused(start: bytes) -> None:
    with pytest.raises(JournalError) as caught:
        journal.scan(io.BytesIO(start))
    assert caught.value.hint


def test_a_lying_length_costs_no_memory(data: bytes) -> None:
    first = journal.scan(io.BytesIO(data)).records[0]
    start = first.body - 16 - len(journal.pack_head(first.head()))
    for n_head, n_body in ((2**32 - 1, 0), (1, 2**64 - 1), (16 << 20, 2**63)):
        lying = data[:start] + struct.pack("<4sIQ", b"REC1", n_head, n_body) + data[start + 16 :]
        assert journal.scan(io.BytesIO(lying)).records == ()


def test_a_torn_tail_is_cut_off_before_the_next_append(data: bytes, path: Path) -> None:
    path.write_bytes(data[:-5])
    with path.open("rb") as file:
        found = journal.scan(file)
    writer = JournalWriter(path, found)
    assert path.stat().st_size == found.end
    add(writer, 11, 4)
    with path.open("rb") as file:
        again = journal.scan(file)
    assert again.dropped == "" and [r.tokens for r in again.records] == [5, 4, 11]
    assert writer.is_sound
    path.unlink()
    assert not writer.is_sound
    writer.close()
    writer.close()


def test_head_with_too_many_events_is_refused_and_nothing_is_written(path: Path) -> None:
    writer = JournalWriter.create(path, BASE)
    before = path.read_bytes()
    with pytest.raises(JournalError, match="a record's head of"):
        add(writer, 5, 2, events=[{"text": "x" * journal.MAX_HEAD_BYTES}])
    assert path.read_bytes() == before
    add(writer, 5, 2)
    with path.open("rb") as file:
        assert len(journal.scan(file).records) == 1


def test_rows_of_both_types_count_their_bytes() -> None:
    assert journal.Rows("a", "<f2", 0, (3, 2)).n_bytes == 12
    assert journal.Rows("a", "<f4", 0, (3, 2)).n_bytes == 24
    assert np.dtype("<f2") == np.float16


def test_whether_there_are_records_is_told_without_reading_them(data: bytes, path: Path) -> None:
    first = journal.scan(io.BytesIO(data)).records[0]
    base_end = first.body - 16 - len(journal.pack_head(first.head()))
    for n_bytes in range(len(data)):
        assert journal.has_records(io.BytesIO(data[:n_bytes])) == (n_bytes > base_end)


def test_a_passing_note_counts_while_it_is_the_last() -> None:
    passing, other = {"event": "waiting", "passing": True}, {"event": "call"}
    assert journal.lasting([passing, other, passing]) == [other, passing]
    assert journal.lasting([other, passing, other]) == [other, other]
    assert journal.lasting([]) == []
