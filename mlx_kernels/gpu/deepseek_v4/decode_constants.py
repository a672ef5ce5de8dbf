"""Small arrays that decode kernels read: sizes, numbers, positions and angles.

A number in an array needs no compile; a value of a template does. All are evaluated and kept, so
that a token sends each of them to the device at most once, for all layers. None is as small as 8
bytes: MLX would leave it in the host's memory (see ``mlx_kernels.gpu.constants``).
"""

from functools import lru_cache
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlx_kernels.deepseek_v4_turns import turns
from mlx_kernels.gpu.constants import on_device

_N_NUMBERS = 8  # of a position, zeros at the end


def _kept(array: mx.array) -> mx.array:
    mx.eval(array)
    return array


@lru_cache(maxsize=64)
def integers(*values: int) -> mx.array:
    """[32] int32 that begins with sizes of a layer."""
    return on_device(values, mx.int32)


@lru_cache(maxsize=64)
def numbers(*values: float) -> mx.array:
    """[32] float32 that begins with numbers of a layer."""
    return on_device(values, mx.float32)


@lru_cache(maxsize=8)
def nothing(dtype: mx.Dtype, is_argument: bool = False) -> mx.array:
    """In place of an input that a kernel does not read: 16 zeros, since fewer than 8 elements would
    lie in another address space of Metal.

    ``is_argument``: of a kept graph, which must not be one of its constants.
    """
    return _kept(mx.zeros(16, dtype))


class Moment(NamedTuple):
    """What launches need to know of a position.

    Attributes:
        now: [8] int32, the first ones of which are numbers of the position.
        turn: [r] float32, cosines of the position's angles, then sines.
        row_turn: Those of the first position of a compressed row that the position completes.
    """

    now: mx.array
    turn: mx.array
    row_turn: mx.array


def moment(
    numbers: tuple[int, ...], position: int, row_position: int, frequencies: np.ndarray
) -> Moment:
    """Send what changes with the position, as one array, to the device's own memory."""
    return _moment(numbers, position, row_position, frequencies.tobytes())


@lru_cache(maxsize=16)
def _moment(
    numbers: tuple[int, ...], position: int, row_position: int, frequencies: bytes
) -> Moment:
    omega = np.frombuffer(frequencies, np.float64)
    angles = [turns(at, 1, omega) for at in (position, row_position)]
    floats = np.concatenate([part[0] for pair in angles for part in pair]).astype(np.float32)
    words = np.zeros(_N_NUMBERS, np.int32)
    words[: len(numbers)] = numbers
    # An array from the host stays where the host wrote it; a sum is made on the device.
    sent = mx.array(np.concatenate([words, floats.view(np.int32)])) + mx.array(0, mx.int32)
    now, turn, row_turn = mx.split(sent, [_N_NUMBERS, _N_NUMBERS + 2 * omega.size])
    made = Moment(now, turn.view(mx.float32), row_turn.view(mx.float32))
    mx.async_eval(*made)
    return made


@lru_cache(maxsize=16)
def token_of(token_id: int) -> mx.array:
    """[8] int32 that begins with a token's id."""
    token = mx.pad(mx.array([token_id], mx.int32), (0, _N_NUMBERS - 1))
    mx.async_eval(token)
    return token
