"""Numbers on FP8 and FP4 grids, and arrays in few bytes."""

import numpy as np
import pytest

from sessions import grids, squeeze
from sessions.errors import CheckpointError
from sessions.grids import FP4, FP8


def on_grid(random, n: int, width: int, grid: grids.Grid, least=-12, most=4) -> np.ndarray:
    """Rows as a network leaves them: any number of the grid times a power for each group."""
    codes = random.integers(0, len(grid.numbers), (n, width // grid.group, grid.group))
    numbers = np.array(grid.numbers, np.float64)[codes]
    powers = 2.0 ** random.integers(least, most, (n, width // grid.group, 1))
    with np.errstate(over="ignore"):
        return (numbers * powers).astype(np.float16).reshape(n, width)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def test_the_grids_are_the_published_ones() -> None:
    # E4M3: 448 is 1111 110, the smallest normal number 2**-6, the smallest of all 2**-9
    assert FP8.numbers[0b1111_110] == 448 and FP8.numbers[0b0001_000] == 2.0**-6
    assert FP8.numbers[1] == 2.0**-9 and FP8.numbers[0x80 | 0b0111_000] == -1.0
    assert FP4.numbers[:8] == (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    assert np.signbit(np.array(FP8.numbers)[128]) and np.signbit(np.array(FP4.numbers)[8])


@pytest.mark.parametrize("grid", [FP8, FP4], ids=lambda grid: grid.name)
def test_every_number_of_a_grid_comes_back_with_its_bits(grid) -> None:
    random = np.random.default_rng(1)
    rows = on_grid(random, 2000, 2 * grid.group, grid)
    packed = grids.pack(rows, grid)
    assert packed.strays.size == 0
    assert same(grids.unpack(packed.exponents, packed.codes, grid), rows)


@pytest.mark.parametrize("grid", [FP8, FP4], ids=lambda grid: grid.name)
def test_a_row_off_the_grid_is_found_and_no_other(grid) -> None:
    random = np.random.default_rng(2)
    rows = on_grid(random, 1500, grid.group, grid, least=0, most=1)
    rows[:, 0] = max(grid.numbers)  # the power of each group is then 1
    for row, value in ((7, 1.0009765625), (700, np.nan), (1400, np.inf)):
        rows[row, 1] = value
    packed = grids.pack(rows, grid)
    assert packed.strays.tolist() == [7, 700, 1400]
    kept = np.delete(np.arange(len(rows)), packed.strays)
    assert same(grids.unpack(packed.exponents, packed.codes, grid)[kept], rows[kept])


def test_all_float16_patterns_are_packed_exactly_or_called_strays() -> None:
    for grid in (FP8, FP4):
        rows = np.zeros((1 << 16, grid.group), np.uint16)
        rows[:, 0] = np.arange(1 << 16)
        rows = rows.view(np.float16)
        packed = grids.pack(rows, grid)
        decoded = grids.unpack(packed.exponents, packed.codes, grid)
        kept = np.delete(np.arange(1 << 16), packed.strays)
        assert same(decoded[kept], rows[kept]) and kept.size > 100


@pytest.mark.parametrize(
    ("rows", "most"),
    [
        (lambda r: on_grid(r, 1000, 128, FP4), 0.27),
        (lambda r: on_grid(r, 1000, 448, FP8), 0.53),
        (
            lambda r: np.hstack(
                [on_grid(r, 1000, 448, FP8), r.standard_normal((1000, 64)).astype(np.float16)]
            ),
            0.6,
        ),
        (lambda r: r.standard_normal((1000, 512)).astype(np.float16), 0.9),
        (lambda r: r.standard_normal((300, 1024)).astype(np.float32), 0.93),
        (lambda r: r.integers(0, 2**16, (100, 96), np.uint16).view(np.float16), 1.01),
        (lambda r: np.zeros((9, 1), np.float16), 2.1),
        (lambda r: np.zeros((5000, 512), np.float16), 0.08),
    ],
)
def test_arrays_come_back_bit_by_bit_in_few_bytes(rows, most) -> None:
    rows = rows(np.random.default_rng(3))
    data = squeeze.encode(rows)
    assert same(squeeze.decode(data, *rows.shape, rows.dtype), rows)
    assert len(data) <= most * rows.nbytes + 60
    assert rows.nbytes <= squeeze.MOST_EXPANSION * len(data)


def test_some_rows_off_the_grid_are_kept_as_they_are() -> None:
    random = np.random.default_rng(4)
    rows = on_grid(random, 1000, 448, FP8)
    rows[::16] = random.standard_normal((63, 448))
    rows[1] = on_grid(random, 1, 448, FP8)  # the sample decides for the grid
    data = squeeze.encode(rows)
    assert same(squeeze.decode(data, *rows.shape, rows.dtype), rows)
    assert len(data) < 0.65 * rows.nbytes


def test_pieces_are_bounded_and_cover_the_array() -> None:
    array = np.arange(3 << 20, dtype=np.float32).reshape(-1, 4, 8)
    parts = list(squeeze.pieces(array))
    assert max(part.nbytes for part in parts) <= squeeze.PIECE_BYTES
    assert same(np.concatenate(parts), array.reshape(-1, 32))
    assert list(squeeze.pieces(np.zeros((0, 512), np.float16))) == []


def test_a_damaged_piece_is_an_error_and_never_larger_than_it_may_be() -> None:
    random = np.random.default_rng(5)
    rows = np.hstack([on_grid(random, 40, 64, FP8), random.standard_normal((40, 9))])
    rows = rows.astype(np.float16)
    data = squeeze.encode(rows)
    n_errors = 0
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(random.integers(1, 4)):
            broken[random.integers(0, len(broken))] = random.integers(0, 256)
        broken = broken[: random.integers(len(data) // 2, len(data) + 1)]
        try:
            squeeze.decode(bytes(broken), *rows.shape, rows.dtype)
        except CheckpointError:
            n_errors += 1
    assert n_errors > 100  # a changed number alone is found by the checksum of the file
