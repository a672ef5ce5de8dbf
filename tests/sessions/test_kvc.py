"""The envelope, byte for byte, against vectors of the format's description."""

import io
from dataclasses import replace

import pytest

from sessions import kvc
from sessions.errors import CheckpointError
from sessions.identity import session_id, text_id
from sessions.kvc import Header, Profile, Reason

OLD = Profile.DS4_MAY21
HEADERS = [
    # profile ds4: model, quant, reason, flags, tokens, hits, ctx, created, last used, payload
    (
        Header(2, 6, 8, 0, 2048, 0, 100000, 1779364800, 1779364800, 52184460),
        "4b564301020608000008000000000000a086010002000000c0f30e6a00000000c0f30e6a00000000"
        "8c451c0300000000",
    ),
    (
        Header(4, 1, 0, 1, 2048, 0, 100000, 1779800000, 1779800000, 75564572),
        "4b564301040100010008000000000000a086010002000000c097156a00000000c097156a00000000"
        "1c06810400000000",
    ),
    (
        Header(2, 6, 8, 4, 2048, 0, 32768, 1779800000, 1779800060, 24118324),
        "4b5643010206080400080000000000000080000002000000c097156a00000000fc97156a00000000"
        "3404700100000000",
    ),
    (
        Header(2, 6, 8, 0, 1234, 0, 100000, 1779800000, 1779803600, 0),
        "4b56430102060800d204000000000000a086010002000000c097156a00000000d0a5156a00000000"
        "0000000000000000",
    ),
    (
        Header(2, 5, 0, 0, 3000, 0, 100000, 1779800000, 1779800000, 65269868),
        "4b56430102050000b80b000000000000a086010002000000c097156a00000000c097156a00000000"
        "6cf0e30300000000",
    ),
    (
        Header(2, 3, 3, 0, 15000, 4, 32768, 1779800000, 1779807200, 230448108),
        "4b56430102030300983a0000040000000080000002000000c097156a00000000e0b3156a00000000"
        "ec5bbc0d00000000",
    ),
    # profile ds4-may21
    (
        Header(2, 1, 0, 0, 2048, 0, 100000, 1779364800, 1779364800, 52184460, OLD),
        "4b564301020100000008000000000000a086010000000000c0f30e6a00000000c0f30e6a00000000"
        "8c451c0300000000",
    ),
    (
        Header(4, 6, 0, 0, 12345, 3, 32768, 1779300000, 1779364800, 0x123456789A, OLD),
        "4b5643010406000039300000030000000080000000000000a0f60d6a00000000c0f30e6a00000000"
        "9a78563412000000",
    ),
    (
        Header(2, 2, 1, 0, 10240, 7, 1048576, 1, 2, 5000000000, OLD),
        "4b564301020201000028000007000000000010000000000001000000000000000200000000000000"
        "00f2052a01000000",
    ),
    (
        Header(2, 1, 0, 0, 1, 0, 4096, 0, 0, 0, OLD),
        "4b564301020100000100000000000000001000000000000000000000000000000000000000000000"
        "0000000000000000",
    ),
]

# A checkpoint of a server: text "hello", 16 bytes of dummy payload, a tool map.
TINY = bytes.fromhex(
    "4b56430102020100000200000000000000100000000000 00c0f30e6a00000000"
    "c0f30e6a00000000100000000000000005000000 68656c6c6f000102030405060708090a0b0c0d0e0f"
    "4b544d010100000009000000 2e00000063616c6c5f30303031"
    "3cefbd9c44534d4cefbd9c746f6f6c5f63616c6c733e783c2fefbd9c44534d4cefbd9c746f6f6c5f63616c6c733e"
)
# A session without a payload: prompt typed as "Fix  the\nbuild".
STRIPPED_ID = "07d7132e06162fed4b1dc67d6ccbe31f0a5ca634"
STRIPPED_TEXT = (
    "<｜begin▁of▁sentence｜>S<｜User｜>Fix  the\nbuild"
    "<｜Assistant｜></think>ok<｜end▁of▁sentence｜>"
).encode()
STRIPPED = bytes.fromhex(
    "4b564301020608000900000000000000001000000200 0000c0f30e6a00000000"
    "fcf30e6a0000000000000000000000006e000000 3cefbd9c626567696ee296816f66e2968173656e74656e6365"
    "efbd9c3e533cefbd9c55736572efbd9c3e4669782020746865 0a6275696c643cefbd9c417373697374616e74"
    "efbd9c3e3c2f7468696e6b3e6f6b3cefbd9c656e64e296816f66e2968173656e74656e6365efbd9c3e"
    "0d00000046697820746865206275696c64"
)


def whole(data: bytes) -> tuple[kvc.Envelope, bytes, bytes | None]:
    file = io.BytesIO(data)
    envelope = kvc.read_envelope(file)
    return envelope, kvc.read_text(file, envelope), kvc.read_title(file, envelope)


@pytest.mark.parametrize(("header", "data"), HEADERS)
def test_header_vector_packs_and_parses(header: Header, data: str) -> None:
    assert header.pack().hex() == data
    assert kvc.parse_header(bytes.fromhex(data)) == header


def test_tiny_server_file_is_located_and_touched() -> None:
    assert len(TINY) == 144
    envelope, text, title = whole(TINY)
    assert (text, title) == (b"hello", None)
    assert text_id(text) == "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"
    assert envelope.header.profile is OLD
    assert TINY[envelope.payload_offset : envelope.payload_end] == bytes(range(16))
    assert TINY[envelope.payload_end :].startswith(b"KTM")
    assert len(TINY) - envelope.payload_end == 71
    touched = replace(envelope.header, hits=1, last_used=1779368400).pack()
    assert touched[8:].hex(" ") == (
        "00 02 00 00 01 00 00 00 00 10 00 00 00 00 00 00 c0 f3 0e 6a 00 00 00 00 "
        "d0 01 0f 6a 00 00 00 00 10 00 00 00 00 00 00 00"
    )


def test_stripped_session_reads_and_is_written_alike() -> None:
    assert (len(STRIPPED), len(STRIPPED_TEXT)) == (179, 110)
    envelope, text, title = whole(STRIPPED)
    assert (text, title) == (STRIPPED_TEXT, b"Fix the build")
    assert title is not None
    assert session_id(title, envelope.header.created_at) == STRIPPED_ID
    assert envelope.header.tokens == 9
    out = io.BytesIO()
    assert kvc.write(out, envelope.header, text, lambda file: None, title) == 179
    assert out.getvalue() == STRIPPED


@pytest.mark.parametrize("value", [1, 3, 255])
def test_byte_20_of_no_profile_is_refused(value: int) -> None:
    with pytest.raises(CheckpointError, match="bytes 20-23"):
        whole(STRIPPED[:20] + bytes([value]) + STRIPPED[21:])


def test_old_revision_is_told_by_its_profile() -> None:
    envelope, _, _ = whole(STRIPPED[:20] + b"\0" + STRIPPED[21:])
    assert envelope.header.profile is OLD


def test_old_revision_with_a_model_id_is_refused() -> None:
    with pytest.raises(CheckpointError, match="model id 1"):
        whole(STRIPPED[:7] + b"\1" + STRIPPED[8:20] + b"\0" + STRIPPED[21:])


@pytest.mark.parametrize("offset", [21, 22, 23])
def test_bytes_behind_byte_20_must_be_zero(offset: int) -> None:
    with pytest.raises(CheckpointError, match="bytes 20-23"):
        whole(STRIPPED[:offset] + b"\1" + STRIPPED[offset + 1 :])


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, b"kvc", "not a checkpoint"),
        (3, b"\2", "envelope version 2"),
        (4, b"\3", "quant bits 3"),
        (8, b"\0\0\0\0", "0 tokens"),
        (40, b"\x20", "its header promises"),
        (40, b"\xff" * 8, "its header promises"),
        (48, b"\xff" * 4, "its header promises"),
        (6, b"\x09", "both a title and a tool map"),
        (162, b"\x0e", "the title has 14 bytes, the file 13"),
        (162, b"\xff" * 4, "the title has 4294967295 bytes"),
    ],
)
def test_damaged_envelope_is_refused(offset: int, value: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        whole(STRIPPED[:offset] + value + STRIPPED[offset + len(value) :])
    assert caught.value.hint


def test_changed_title_or_time_gives_another_id() -> None:
    later, _, title = whole(STRIPPED[:24] + b"\xc1" + STRIPPED[25:])
    assert title is not None
    assert session_id(title, later.header.created_at) != STRIPPED_ID
    envelope, _, title = whole(STRIPPED[:-1] + b"D")
    assert title is not None
    assert session_id(title, envelope.header.created_at) != STRIPPED_ID


def test_without_the_title_flag_the_text_names_the_file() -> None:
    _, text, title = whole(STRIPPED[:6] + b"\0" + STRIPPED[7:])
    assert title is None
    assert text_id(text) != STRIPPED_ID


def test_file_cut_anywhere_is_refused() -> None:
    for n_bytes in range(len(STRIPPED)):
        with pytest.raises(CheckpointError):
            whole(STRIPPED[:n_bytes])


def test_bytes_behind_the_trailer_are_ignored() -> None:
    assert whole(STRIPPED + b"more")[2] == b"Fix the build"


def test_unknown_reason_reads_as_unknown_and_flags_are_kept() -> None:
    header = kvc.parse_header(Header(2, 7, 0xF0, 0, 1, 0, 1, 0, 0, 0).pack())
    assert (header.reason, header.flags) == (Reason.UNKNOWN, 0xF0)
