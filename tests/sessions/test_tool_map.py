"""Tool maps behind a checkpoint: exact calls by their ids, as the C program writes them."""

import io
import struct

import pytest

from engine.chat.replay import CallReplay, write_ktm
from sessions import checkpoint, kvc
from sessions.errors import CheckpointError
from sessions.kvc import Profile, Reason
from tests.sessions.states import make_state
from tests.sessions.test_kvc import TINY

BLOCK = "<｜DSML｜tool_calls>x</｜DSML｜tool_calls>".encode()
ENTRIES = [("call_0001", BLOCK)]


def read(data: bytes) -> list[tuple[str, bytes]]:
    file = io.BytesIO(data)
    return kvc.read_tool_map(file, kvc.read_envelope(file))


def test_the_described_file_is_read_and_written_alike() -> None:
    assert read(TINY) == ENTRIES
    file = io.BytesIO(TINY)
    envelope, out = kvc.read_envelope(file), io.BytesIO()
    text, payload = kvc.read_text(file, envelope), bytes(range(16))
    kvc.write(out, envelope.header, text, lambda to: to.write(payload), tool_map=ENTRIES)
    assert out.getvalue() == TINY


def written(**options) -> tuple[bytes, checkpoint.Checkpoint]:
    out = io.BytesIO()
    options = {"reason": Reason.COLD, "created_at": 5, "last_used": 5, **options}
    found = checkpoint.write(out, make_state(), b"say " + BLOCK, **options)
    return out.getvalue(), found


def test_a_map_of_the_replay_goes_with_the_state_and_comes_back() -> None:
    replay = CallReplay()
    replay.remember(["call_a", "call_b"], BLOCK)
    replay.remember(["call_c"], b"of another conversation")
    data, found = written(tool_map=replay.entries(b"say " + BLOCK))
    assert found.header.flags == kvc.FLAG_TOOL_MAP
    assert found.tool_map() == [("call_b", BLOCK), ("call_a", BLOCK)]
    assert found.title() is None
    again = CallReplay()
    assert again.load(write_ktm(read(data))) == 2
    assert again.block(["call_a", "call_b"]) == BLOCK


def test_without_calls_there_is_no_trailer() -> None:
    data, found = written()
    assert (found.header.flags, found.tool_map()) == (0, [])
    assert len(data) == found.envelope.payload_end


def test_a_session_has_no_room_for_a_map() -> None:
    with pytest.raises(ValueError, match="a title or a tool map"):
        written(title=b"Title", tool_map=ENTRIES)
    data, found = written(title=b"Title")
    assert (found.title(), found.tool_map()) == (b"Title", [])
    assert read(data) == []


def test_a_map_cut_anywhere_gives_what_is_whole() -> None:
    data, found = written(tool_map=[*ENTRIES, ("call_2", b"zweiter")])
    end = found.envelope.payload_end
    first = end + 8 + 8 + 9 + len(BLOCK)
    for n_bytes in range(end, len(data)):
        assert read(data[:n_bytes]) == (ENTRIES if n_bytes >= first else [])
    assert len(read(data)) == 2
    assert read(data + b"more") == read(data)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b"KTX"),
        (3, b"\2"),
        (4, struct.pack("<I", 400_001)),
        (8, struct.pack("<I", 0)),
        (8, struct.pack("<I", 257)),
        (12, struct.pack("<I", 0)),
        (12, struct.pack("<I", (512 << 20) + 1)),
        (12, b"\xff" * 4),
    ],
)
def test_a_damaged_map_is_no_map_and_no_error(at: int, value: bytes) -> None:
    data, found = written(tool_map=ENTRIES)
    start = found.envelope.payload_end + at
    damaged = data[:start] + value + data[start + len(value) :]
    assert read(damaged) == []
    assert checkpoint.reopened(io.BytesIO(damaged)).state(b"say " + BLOCK).tokens


def test_the_llama_family_has_no_form_for_the_earlier_revision() -> None:
    with pytest.raises(CheckpointError, match="no form of the profile ds4_may21"):
        written(profile=Profile.DS4_MAY21)


@pytest.mark.parametrize("reason", [Reason.AGENT_SYSTEM, Reason.AGENT_SESSION])
def test_both_reasons_of_an_agent(reason: Reason) -> None:
    _, found = written(reason=reason)
    assert found.header.reason == reason
    assert found.header.pack()[5] == reason
