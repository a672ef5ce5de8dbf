"""Decoder of IQ2_XXS: 256 values in 66 bytes, eight neighbours at a time from a table.

Block: scale f16, then eight groups of 8 bytes for 32 values each: four indices of the grid, then
a little-endian u32 with four times 7 sign bits and, on top, 4 bits of the group's scale:

    value = f16 * (0.5 + scale) * 0.25 * grid[index][lane] * (-1 where the sign bit is set)

The sign of the eighth lane isn't stored: the number of negative ones of the eight is even.
"""

from functools import cache

import numpy as np

from mlx_kernels.blocks.unpacking import half

_LEVELS = np.array([8, 25, 43], np.uint8)
# 256 entries of 16 bits, four hexadecimal digits each: lane t is level (entry >> 2 t) & 3. The
# table belongs to the format; it is the one that the gguf package publishes.
_GRID = (
    "0000000200050008000a00110014002000220028002a00410044005000580061"
    "006400800082008a00a201010104011001150140018401980200020202220282"
    "04010404041004210424044004420448046004810484049004a4050005020508"
    "05200546056905800591060906100640068406a4080008050808081408280841"
    "0844085008520888090409400a020a1410011004101010211040106010841090"
    "10951100110811201150115a1180122412451400140814201425144914801518"
    "156216001616180118041810184018811900190519a01a5120002002200a2044"
    "2061208020822129214822002202240124042410244024562500254125642690"
    "2808282028942a44400140044010401840214024404040484056406040814084"
    "4090410041204161418041854201421042484256426844004408442044804499"
    "4512452446004801480448104840484549004958496149824a454a9050005008"
    "501150195020508050885104514251a4529154905492550a5601565458005811"
    "5819586459405a08600460106040606861006155621862606400640565106512"
    "6584684280008002800a80418082810481188140821184018404841084158440"
    "8460850085468594860986408660880289048a11900490109024904090a19116"
    "91809245940094229444955198819920a002a050a085a109a200a418a850a904"
)


@cache
def iq2_xxs_grid() -> np.ndarray:
    """Return the grid [256, 8] uint8, with values 8, 25 and 43."""
    entries = np.frombuffer(bytes.fromhex(_GRID), ">u2").astype(np.uint16)
    grid = _LEVELS[(entries[:, None] >> np.arange(0, 16, 2, dtype=np.uint16)) & 3]
    grid.flags.writeable = False
    return grid


@cache
def iq2_xxs_signs() -> np.ndarray:
    """Return the eight sign bits [128] uint8 of each stored 7; bit 7 makes their number even."""
    stored = np.arange(128, dtype=np.uint8)
    parity = np.unpackbits(stored[:, None], axis=1).sum(axis=1, dtype=np.uint8) & 1
    signs = stored | parity << 7
    signs.flags.writeable = False
    return signs


@cache
def _signed_grid() -> np.ndarray:
    """[128 * 256] uint64: the eight int8 values of each pair of signs and index, 256 KiB."""
    bits = np.unpackbits(iq2_xxs_signs()[:, None], axis=1, bitorder="little")  # [128, 8]
    signs = 1 - 2 * bits.astype(np.int8)
    signed = signs[:, None, :] * iq2_xxs_grid().astype(np.int8)  # [128, 256, 8]
    return np.ascontiguousarray(signed).view(np.uint64).reshape(-1)


def decode_iq2_xxs(blocks: np.ndarray, out: np.ndarray) -> None:
    """Fill out [n, 256] float32 from blocks [n, 66] uint8."""
    n = len(blocks)
    words = blocks[:, 2:].copy().view("<u4").reshape(n, 8, 2)
    signs_and_scale = words[:, :, 1]
    stored_signs = signs_and_scale[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32)  # [n, 8, 4]
    stored_signs &= 127
    stored_signs <<= 8
    stored_signs |= np.ascontiguousarray(words[:, :, 0]).view(np.uint8).reshape(n, 8, 4)
    integers = _signed_grid()[stored_signs.reshape(-1)].view(np.int8).reshape(n, 256)
    scales = half(blocks, 0) * ((signs_and_scale >> 28).astype(np.float32) + np.float32(0.5))
    scales *= np.float32(0.25)  # [n, 8]
    out[...] = integers
    grouped = out.reshape(n, 8, 32)
    np.multiply(grouped, scales[:, :, None], out=grouped)
