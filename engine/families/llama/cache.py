"""The KV state of a Llama-like network: keys and values of every position, layer by layer."""

import numpy as np

from engine.errors import RewindError, StateMismatch
from mlx_kernels.ops import KvBuffer


class LlamaCache:
    """One buffer a layer (``engine.families.base.Cache``).

    Attributes:
        buffers: One a layer. During a forward pass the first layers are ahead of the last ones.
    """

    def __init__(self, buffers: list[KvBuffer], row_shape: tuple[int, int], ctx: int) -> None:
        self.buffers = buffers
        self._row_shape = row_shape  # (Hkv, D)
        self._ctx = ctx

    @property
    def n_tokens(self) -> int:
        """Positions that have passed the last layer."""
        return self.buffers[-1].n_rows

    def truncate(self, n_tokens: int) -> None:
        """Forget every position from ``n_tokens`` on, in every layer.

        Raises:
            RewindError: there are fewer positions than that.
        """
        if not 0 <= n_tokens <= self.n_tokens:
            raise RewindError(
                f"cannot go back to position {n_tokens} of {self.n_tokens}",
                "Name a position that exists.",
            )
        for buffer in self.buffers:
            buffer.truncate(n_tokens)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies: ``layers.<i>.k`` and ``layers.<i>.v``, float16 [T, Hkv, D]."""
        arrays = {}
        for i, buffer in enumerate(self.buffers):
            arrays[f"layers.{i}.k"], arrays[f"layers.{i}.v"] = buffer.read()
        return arrays

    def arrays_since(self, kept: int) -> dict[str, tuple[int, np.ndarray]]:
        """See ``Cache``: a token settles its own row of every array."""
        arrays = {}
        for i, buffer in enumerate(self.buffers):
            keys, values = buffer.read(kept)
            arrays[f"layers.{i}.k"], arrays[f"layers.{i}.v"] = (kept, keys), (kept, values)
        return arrays

    def load(self, arrays: dict[str, np.ndarray], n_tokens: int, *, consume: bool = False) -> None:
        """Replace the state; see ``Cache``.

        Raises:
            StateMismatch: a name, shape or dtype is not that of this network's state, or there
                are more positions than the context. The cache is then unchanged.
        """
        names = {f"layers.{i}.{part}" for i in range(len(self.buffers)) for part in "kv"}
        if arrays.keys() != names:
            wrong = sorted(arrays.keys() ^ names)
            raise StateMismatch(
                f"the saved state has {len(arrays)} arrays, expected {len(names)}; "
                f"{wrong[0]} is missing or unknown",
                "Open the model that the session was saved with.",
            )
        shape = (n_tokens, *self._row_shape)
        for name in sorted(names):
            array = arrays[name]
            if array.shape != shape or array.dtype != np.float16:
                raise StateMismatch(
                    f"{name} of the saved state is {array.dtype} {list(array.shape)}, "
                    f"expected float16 {list(shape)}",
                    "Open the model that the session was saved with.",
                )
        if n_tokens > self._ctx:
            raise StateMismatch(
                f"the saved state has {n_tokens} tokens, this context has {self._ctx}",
                f"Open the model with a context of at least {n_tokens} tokens.",
            )
        for i, buffer in enumerate(self.buffers):
            keys, values = f"layers.{i}.k", f"layers.{i}.v"
            buffer.write(arrays[keys], arrays[values])
            if consume:
                del arrays[keys], arrays[values]
