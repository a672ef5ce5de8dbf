"""The DSV4 payload against every number of its description: sizes, offsets, header words, what is
refused. Flash has 43 layers, Pro 61; rows are 512 and 128 wide, the vocabulary 129,280 tokens."""

import io
import struct

import numpy as np
import pytest

from sessions import kvc
from sessions.dsv4_payload import _HEADER, FLASH, PRO, _read_shape, _Shape
from sessions.errors import CheckpointError
from sessions.kvc import Envelope, Header, Profile

LAYERS = {FLASH: 43, PRO: 61}
OLD, NEW = Profile.DS4_MAY21, Profile.DS4


def shape(model_id: int, n: int, ctx: int = 1 << 20) -> _Shape:
    return _Shape(model_id, ctx, n, LAYERS[model_id], 512, 128, 129280)


FLASH_BYTES = {
    1: 12_811_664,
    5: 13_217_696,
    128: 25_757_580,
    130: 25_757_588,
    512: 31_042_956,
    2_048: 52_184_460,
    2_050: 52_184_468,
    4_096: 80_373_132,
    10_240: 164_939_148,
    12_000: 189_133_068,
    12_288: 193_127_820,
    20_480: 305_882_508,
    32_768: 475_014_540,
    65_536: 926_033_292,
    100_000: 1_400_385_548,
    262_144: 3_632_145_804,
    1_000_000: 13_787_975_308,
}
PRO_BYTES = {
    1: 19_353_120,
    128: 37_740_572,
    2_048: 75_564_572,
    12_288: 277_292_572,
    32_768: 680_748_572,
    100_000: 2_005_203_100,
    1_000_000: 19_735_187_228,
}


@pytest.mark.parametrize(
    ("model_id", "n", "n_bytes"),
    [(FLASH, n, size) for n, size in FLASH_BYTES.items()]
    + [(PRO, n, size) for n, size in PRO_BYTES.items()],
)
def test_size(model_id: int, n: int, n_bytes: int) -> None:
    assert shape(model_id, n).n_bytes == n_bytes
    fixed, row, four, long = (
        (12_723_596, 88_064, 53_760, 40_960)
        if model_id == FLASH
        else (19_228_188, 124_928, 76_800, 63_488)
    )
    assert n_bytes == fixed + 4 * n + row * min(n, 128) + four * (n // 4) + long * (n // 128)


def offsets(model_id: int, n: int) -> dict[str, int]:
    """Where each section begins."""
    s = shape(model_id, n)
    at = {"tokens": 52, "logits": 52 + 4 * n}
    at["n_comp"] = at["logits"] + 4 * s.n_vocab
    at["n_index"] = at["n_comp"] + 4 * s.n_layers
    end = at["n_index"] + 4 * s.n_layers
    for name, (rows, width), _ in s.arrays():
        at[name] = end
        end += 4 * rows * width
    at["end"] = end
    return at


OFFSETS = {
    FLASH: {
        "tokens": 52,
        "logits": 8_244,
        "n_comp": 525_364,
        "n_index": 525_536,
        "layers.0.window": 525_708,
        "layers.1.window": 787_852,
        "layers.2.window": 1_049_996,
        "layers.2.compressed": 1_312_140,
        "layers.2.compressor.kv": 2_360_716,
        "layers.2.compressor.score": 2_393_484,
        "layers.2.indexer.compressed": 2_426_252,
        "layers.2.indexer.compressor.kv": 2_688_396,
        "layers.2.indexer.compressor.score": 2_696_588,
        "layers.3.window": 2_704_780,
        "layers.3.compressed": 2_966_924,
        "layers.3.compressor.kv": 2_999_692,
        "layers.3.compressor.score": 3_261_836,
        "layers.4.window": 3_523_980,
        "end": 52_184_460,
    },
    PRO: {
        "logits": 8_244,
        "n_comp": 525_364,
        "n_index": 525_608,
        "layers.0.window": 525_852,
        "layers.0.compressed": 787_996,
        "layers.0.compressor.kv": 820_764,
        "layers.0.compressor.score": 1_082_908,
        "layers.1.window": 1_345_052,
        "layers.2.window": 2_164_252,
        "layers.2.compressed": 2_426_396,
        "layers.2.compressor.kv": 3_474_972,
        "layers.2.compressor.score": 3_507_740,
        "layers.2.indexer.compressed": 3_540_508,
        "layers.2.indexer.compressor.kv": 3_802_652,
        "layers.2.indexer.compressor.score": 3_810_844,
        "layers.3.window": 3_819_036,
        "end": 75_564_572,
    },
}


@pytest.mark.parametrize("model_id", [FLASH, PRO])
def test_offsets_at_2048_tokens(model_id: int) -> None:
    found = offsets(model_id, 2048)
    assert {name: found[name] for name in OFFSETS[model_id]} == OFFSETS[model_id]


def test_counts_of_rows_at_130_tokens() -> None:
    counts = shape(FLASH, 130).counts
    assert counts[:6].tolist() == [0, 0, 32, 1, 32, 1]
    assert counts[43:49].tolist() == [0, 0, 32, 0, 32, 0]
    assert shape(PRO, 130).counts[:4].tolist() == [1, 1, 32, 1]


WORDS = [
    # profile, model, envelope's ctx and n, 13 words
    (OLD, FLASH, 100_000, 2048, "44535634 01000000 a0860100 00080000 00090000 80000000 aa610000 "
     "00080000 2b000000 00020000 80000000 00f90100 80000000"),
    (OLD, FLASH, 4096, 5, "44535634 01000000 00100000 00080000 80000000 80000000 02040000 "
     "05000000 2b000000 00020000 80000000 00f90100 05000000"),
    (NEW, FLASH, 100_000, 2048, "44535634 02000000 a0860100 00100000 00110000 80000000 aa610000 "
     "00080000 2b000000 00020000 80000000 00f90100 80000000"),
    (NEW, FLASH, 4096, 5, "44535634 02000000 00100000 00100000 80000000 80000000 02040000 "
     "05000000 2b000000 00020000 80000000 00f90100 05000000"),
    (NEW, PRO, 100_000, 2048, "44535634 02000000 a0860100 00200000 00200000 80000000 aa610000 "
     "00080000 3d000000 00020000 80000000 00f90100 80000000"),
]  # fmt: skip


def read_words(words: bytes, profile: Profile, model_id: int, ctx: int, n: int, n_bytes: int):
    header = Header(2, 1, 0, model_id, n, 0, ctx, 0, 0, n_bytes, profile)
    file = io.BytesIO(header.pack() + bytes(4) + words)
    return _read_shape(file, Envelope(header, 0, 52 + n_bytes))[0]


@pytest.mark.parametrize(("profile", "model_id", "ctx", "n", "words"), WORDS)
def test_header_words_of_the_c_program_are_read(profile, model_id, ctx, n, words) -> None:
    """Those of a GPU differ from ours in the ring, which is the writer's choice."""
    s = shape(model_id, n, ctx)
    raw = bytes.fromhex(words)
    assert read_words(raw, profile, model_id, ctx, n, s.n_bytes) == s
    ours = s.pack(1 if profile is OLD else 2)
    assert ours[:16] == raw[:16] and ours[20:] == raw[20:]
    assert ours[16:20] == struct.pack("<I", min(128, ctx))  # the ring of a CPU


@pytest.mark.parametrize(
    ("ctx", "old", "flash", "pro", "window", "room"),
    [
        (100, 100, 100, 100, 100, 27),
        (512, 512, 512, 512, 128, 130),
        (1024, 1024, 1024, 1024, 128, 258),
        (2048, 2048, 2048, 2048, 128, 514),
        (2200, 2048, 2200, 2200, 128, 552),
        (4096, 2048, 4096, 4096, 128, 1026),
        (4100, 2048, 4096, 4100, 128, 1027),
        (8200, 2048, 4096, 8192, 128, 2052),
        (32768, 2048, 4096, 8192, 128, 8194),
        (100000, 2048, 4096, 8192, 128, 25002),
        (1048576, 2048, 4096, 8192, 128, 262146),
    ],
)
def test_what_follows_from_the_context(ctx, old, flash, pro, window, room) -> None:
    """Columns: prefill chunk of the earlier revision, of Flash and of Pro; window; rows."""
    for model_id, version, chunk in ((FLASH, 1, old), (FLASH, 2, flash), (PRO, 2, pro)):
        words = _HEADER.unpack(shape(model_id, 5, ctx).pack(version))
        assert words[2:7] == (ctx, chunk, window, window, room)


@pytest.mark.parametrize(
    ("word", "value", "told"),
    [
        (0, 1, "expected b'DSV4'"),
        (1, 2, "version 2, expected b'DSV4' version 1"),
        (2, 5000, "the header says"),
        (7, 4096, "the header says"),
        (5, 64, "a window of 64"),
        (4, 0, "a ring of 0 rows"),
        (4, 100, "a ring of 100 rows"),
        (12, 127, "a window of 128 with 127 rows"),
        (6, 2000, "room for 2000"),
        (6, 5000, "room for 5000"),
        (8, 61, "its counts give"),
        (9, 256, "its counts give"),
        (10, 64, "its counts give"),
        (11, 1000, "its counts give"),
    ],
)
def test_a_wrong_word_of_the_header_is_refused(word: int, value: int, told: str) -> None:
    s = shape(FLASH, 130, 4096)
    words = list(_HEADER.unpack(s.pack(1)))
    words[word] = value
    with pytest.raises(CheckpointError, match=told):
        read_words(_HEADER.pack(*words), OLD, FLASH, 4096, 130, s.n_bytes)


@pytest.mark.parametrize(("word", "value"), [(4, 4096), (3, 1024), (3, 0)])
def test_words_that_are_the_writers_choice_are_taken(word: int, value: int) -> None:
    s = shape(FLASH, 130, 4096)
    words = list(_HEADER.unpack(s.pack(1)))
    words[word] = value
    assert read_words(_HEADER.pack(*words), OLD, FLASH, 4096, 130, s.n_bytes) == s


@pytest.mark.parametrize("n_bytes", [-1, 1])
def test_a_byte_more_or_less_is_refused(n_bytes: int) -> None:
    s = shape(FLASH, 130, 4096)
    with pytest.raises(CheckpointError, match="its counts give"):
        read_words(s.pack(1), OLD, FLASH, 4096, 130, s.n_bytes + n_bytes)


def test_frontiers_have_the_described_shapes() -> None:
    arrays = {name: (rows, width) for name, (rows, width), _ in shape(FLASH, 130).arrays()}
    assert arrays["layers.2.compressor.kv"] == (8, 1024)
    assert arrays["layers.2.indexer.compressor.score"] == (8, 256)
    assert arrays["layers.3.compressor.score"] == (128, 512)
    assert "layers.3.indexer.compressed" not in arrays and "layers.1.compressed" not in arrays
    assert sum(4 * np.prod(s) for n, s in arrays.items() if "compressor" in n) == 12_206_080


def test_other_families_with_the_same_magic_are_not_taken_for_this_one() -> None:
    """Two of them have other widths or vocabularies; V4.1 has no counts of rows."""
    v41 = bytes.fromhex(
        "44535634 02000000 00800000 01000000 80000000 80000000 01800000 81000000 28000000 "
        "00020000 80000000 00f90100 31344100"
    )
    with pytest.raises(CheckpointError):
        read_words(v41, NEW, FLASH, 32768, 129, 11_837_496)
    assert (
        kvc.parse_header(Header(2, 6, 8, 4, 129, 0, 32768, 0, 0, 11_837_496).pack()).model_id == 4
    )
