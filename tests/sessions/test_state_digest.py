"""The checksum of a payload without one: each bit of the file counts, whatever it says."""

import dataclasses
import io
import lzma
from pathlib import Path

import numpy as np
import pytest

from sessions import checkpoint, kvc
from sessions.dsv4_payload import DeepseekV4Payload
from sessions.errors import CheckpointError, ChecksumError
from sessions.state_digest import StateDigest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"


@pytest.fixture(scope="module")
def state():
    """Of the tiny DeepSeek V4."""
    packed = next(FIXTURES.glob("ds4sim_short_*.kv.xz")).read_bytes()
    file = io.BytesIO(lzma.decompress(packed))
    return DeepseekV4Payload().read(file, kvc.read_envelope(file), b"")


def written(state) -> tuple[bytes, str]:
    out, digest = io.BytesIO(), StateDigest()
    checkpoint.write(
        out,
        state,
        b"text",
        reason=kvc.Reason.AGENT_SESSION,
        created_at=1,
        last_used=1,
        title=b"t",
        digest=digest,
    )
    return out.getvalue(), digest.hexdigest()


def read(data: bytes, sha256: str):
    return checkpoint.reopened(io.BytesIO(data)).state(b"text", sha256=sha256)


def test_reading_gives_the_checksum_of_writing(state) -> None:
    data, sha256 = written(state)
    assert len(sha256) == 64
    assert read(data, sha256).tokens == state.tokens
    with pytest.raises(ChecksumError):
        read(data, "0" * 64)


def test_every_flipped_bit_of_the_arrays_is_found(state) -> None:
    """In float32 rows also the bits that narrowing to float16 would round away."""
    data, sha256 = written(state)
    opened = checkpoint.reopened(io.BytesIO(data))
    first = opened.envelope.payload_offset + 52 + 4 * (len(state.tokens) + len(state.logits))
    places = np.random.default_rng(5).integers(first, opened.envelope.payload_end, 100)
    for n, place in enumerate(places):
        changed = bytearray(data)
        changed[place] ^= 1 << n % 8
        with pytest.raises(ChecksumError):
            read(bytes(changed), sha256)


def test_a_state_that_should_not_have_been_written_is_no_damage(state) -> None:
    window = state.arrays["layers.2.window"].copy()
    window[3, 5] = np.inf
    arrays = {**state.arrays, "layers.2.window": window}
    data, sha256 = written(dataclasses.replace(state, arrays=arrays))
    with pytest.raises(CheckpointError, match="not finite") as caught:
        read(data, sha256)
    assert not isinstance(caught.value, ChecksumError)


def test_nothing_gives_nothing() -> None:
    digest = StateDigest()
    assert digest.hexdigest() == ""
    digest.close()


def test_rows_and_the_rest_have_their_own_order() -> None:
    rows = np.arange(1 << 17, dtype=np.uint16).view(np.float16)
    one, other, third = StateDigest(), StateDigest(), StateDigest()
    one.update(b"a")
    one.update_rows(rows)
    other.update_rows(rows)
    other.update(b"a")
    third.update_rows(rows[::-1].copy())
    third.update(b"a")
    assert one.hexdigest() == other.hexdigest() != third.hexdigest()
