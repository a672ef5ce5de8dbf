"""The KV state of a DeepSeek V4 network: a window, compressed rows and a frontier, layer by layer.

It can go back a few tokens, or to where the last long block began, and no further: rows that left
the window and tokens that were pooled are gone. Everything else is computed again.
"""

import numpy as np

from engine.errors import RewindError, StateMismatch
from mlx_kernels.deepseek_v4_ops import LayerState


class DeepseekV4Cache:
    """One state a layer (``engine.families.base.Cache``).

    Attributes:
        states: One a layer. During a forward pass the first layers are ahead of the last ones.
    """

    def __init__(self, states: dict[int, LayerState], ctx: int) -> None:
        self.states = states
        self._ctx = ctx

    @property
    def n_tokens(self) -> int:
        """Positions that have passed the last layer."""
        return self.states[max(self.states)].n_tokens

    def truncate(self, n_tokens: int) -> None:
        """Forget every position from ``n_tokens`` on, in every layer.

        Raises:
            RewindError: there are fewer positions, or what the state of that one needs is gone.
                Nothing has changed.
        """
        if not 0 <= n_tokens <= max(state.n_tokens for state in self.states.values()):
            raise RewindError(
                f"cannot go back to position {n_tokens} of {self.n_tokens}",
                "Name a position that exists.",
            )
        if not all(state.can_truncate(n_tokens) for state in self.states.values()):
            raise RewindError(
                f"cannot go back from position {self.n_tokens} to {n_tokens}: "
                "the tokens in between were already pooled",
                "Go back to 0, and read the conversation again.",
            )
        for state in self.states.values():
            state.truncate(n_tokens)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies, ``layers.<i>.`` before the names of ``LayerState.arrays``."""
        return {
            f"layers.{i}.{name}": array
            for i, state in self.states.items()
            for name, array in state.arrays().items()
        }

    def arrays_since(self, kept: int) -> dict[str, tuple[int, np.ndarray]]:
        """See ``Cache``: compressed rows stay, window and frontiers change as a whole."""
        since = {}
        for i, state in self.states.items():
            settled = state.settled(kept)
            for name, array in state.arrays(kept).items():
                since[f"layers.{i}.{name}"] = (settled.get(name, 0), array)
        return since

    def load(self, arrays: dict[str, np.ndarray], n_tokens: int, *, consume: bool = False) -> None:
        """Replace the state; see ``Cache``.

        Raises:
            StateMismatch: a name, shape or dtype is not that of this network's state, or there
                are more positions than the context. The cache is then unchanged.
        """
        if n_tokens > self._ctx:
            raise StateMismatch(
                f"the saved state has {n_tokens} tokens, this context has {self._ctx}",
                f"Open the model with a context of at least {n_tokens} tokens.",
            )
        expected = {
            f"layers.{i}.{name}": kind
            for i, state in self.states.items()
            for name, kind in state.expected(n_tokens).items()
        }
        if arrays.keys() != expected.keys():
            wrong = sorted(arrays.keys() ^ expected.keys())
            raise StateMismatch(
                f"the saved state has {len(arrays)} arrays, expected {len(expected)}; "
                f"{wrong[0]} is missing or unknown",
                "Open the model that the session was saved with.",
            )
        for name, (shape, dtype) in expected.items():
            array = arrays[name]
            if array.shape != shape or array.dtype != dtype:
                raise StateMismatch(
                    f"{name} of the saved state is {array.dtype} {list(array.shape)}, "
                    f"expected {np.dtype(dtype)} {list(shape)}",
                    "Open the model that the session was saved with.",
                )
        for i, state in self.states.items():
            prefix = f"layers.{i}."
            own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            state.load(own, n_tokens)
            if consume:
                for name in own:
                    del arrays[prefix + name]
                del own
