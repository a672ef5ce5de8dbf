"""What a model family provides. One implementation serves every device: it computes only with
the operations of ``mlx_kernels.ops`` and never looks at the array type."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Array = Any  # numpy.ndarray in the cpu world, mlx.core.array in the gpu world
LoadProgress = Callable[[int, int], None]  # bytes done, bytes in all


class Cache(Protocol):
    """The KV state of one session."""

    n_tokens: int

    def truncate(self, n_tokens: int) -> None:
        """Forget every position from ``n_tokens`` on.

        Raises:
            RewindError: the state of that position is no longer there.
        """

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the live state as host arrays (copies), named as in ``SessionState``."""

    def arrays_since(self, kept: int) -> dict[str, tuple[int, np.ndarray]]:
        """Return what the first ``kept`` tokens don't settle for ever, as copies.

        Name -> (first row, the rows from it on). An array that later tokens change as a whole has
        first row 0. At ``kept`` 0 the rows are those of ``arrays``.
        """

    def load(self, arrays: dict[str, np.ndarray], n_tokens: int, *, consume: bool = False) -> None:
        """Replace the state. ``consume``: take what was copied out of ``arrays``, layer by layer,
        so that its memory is free before the next layer needs as much.

        Raises:
            StateMismatch: a name, shape or dtype differs from what ``arrays()`` would give. The
                cache is then unchanged.
        """


class Model(Protocol):
    """A network with its weights on one device."""

    family: str
    n_layers: int
    n_vocab: int
    ctx_train: int
    expert_bits: int  # class of a mixture's experts, 2 or 4 bits; 0 where there are none

    def new_cache(self, ctx: int) -> Cache: ...

    def embed(self, token_ids: np.ndarray) -> Array:
        """Look up token ids [T] int32 -> hidden [T, C] float32."""

    def layers(
        self, first: int, last: int, hidden: Array, cache: Cache, token_ids: np.ndarray
    ) -> Array:
        """Run layers ``first <= i < last`` over T new positions, appending to the cache.

        The cache counts the positions when its last layer has run.
        """

    def head(self, hidden: Array) -> np.ndarray:
        """Final norm and output matrix of hidden [T, C] -> logits [T, V], NumPy float32."""

    def close(self) -> None:
        """Give back what was kept for later tokens. To be called by the thread that computed."""
