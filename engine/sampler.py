"""Choosing the next token from logits.

The filters run in the order of llama.cpp's default chain: repetition penalty, top-k, top-p, min-p,
and temperature last. So top-p and min-p look at the distribution that the model gave, and a high
temperature can't bring back what they removed.

Everything is deterministic, and nothing is carried from token to token: the random number of a
token is a function of the seed and of its position in the conversation (the counter-based
generator Philox4x64-10 of Salmon et al. 2011, key = seed, counter = position; the upper 53 bits of
its first word). So the same tokens, options and seed give the same continuation, whether the
answer was sampled at a stretch, broken off and resumed, or continued by another process: only the
seed has to be kept. Sums are float64.
"""

import secrets
from collections.abc import Sequence

import numpy as np

from engine.errors import EngineError
from engine.sampling_options import MAX_SEED, SamplingOptions


class Sampler:
    """Draws tokens with one set of options.

    Attributes:
        options: As given.
        seed: The seed in use: that of the options, or a random one where they have none.
    """

    def __init__(self, options: SamplingOptions) -> None:
        self.options = options
        self.seed = secrets.randbelow(MAX_SEED) if options.seed is None else options.seed
        self._uniform = _Uniform(self.seed)

    def sample(
        self,
        logits: np.ndarray,
        position: int,
        recent_ids: Sequence[int] = (),
        *,
        greedy: bool = False,
        allowed: np.ndarray | None = None,
    ) -> tuple[int, float]:
        """Choose the next token.

        Args:
            logits: [V] float32, finite. Not changed.
            position: Number of tokens before this one in the conversation.
            recent_ids: Tokens before this one, oldest first; for the repetition penalty only.
            greedy: Take the most probable token, whatever the options say: no penalty either,
                since syntax has to repeat itself.
            allowed: [V] bool; tokens that may be chosen. None: all.

        Returns:
            The token id, and the natural log of its probability under the unmodified logits at
            temperature 1.

        Raises:
            EngineError: a logit is NaN or infinite, so the computation went wrong before; or no
                token is allowed.
        """
        if logits.ndim != 1 or not logits.size:
            raise ValueError(f"logits must be [V], got shape {list(logits.shape)}")
        if not np.isfinite(logits).all():
            n_bad = int(logits.size - np.isfinite(logits).sum())
            raise EngineError(
                f"the model gave {n_bad} of {logits.size} logits that are not finite",
                "Check the model file, or try another device.",
            )
        logits = logits.astype(np.float32, copy=False)
        adjusted = logits if greedy else self._penalised(logits, recent_ids)
        ids = None if allowed is None else np.flatnonzero(allowed)
        if ids is not None:
            if not ids.size:
                raise EngineError("no token is allowed here", "Check the grammar of this request.")
            adjusted = adjusted[ids]
        if greedy or self.options.temperature == 0:
            chosen = int(np.argmax(adjusted))  # the first, so the lowest id, of equal ones
        else:
            chosen = self._draw(adjusted, position)
        token_id = chosen if ids is None else int(ids[chosen])
        return token_id, _logprob(logits, token_id)

    def _penalised(self, logits: np.ndarray, recent_ids: Sequence[int]) -> np.ndarray:
        """Apply the penalty of the CTRL paper (Keskar 2019) once to each recent token. -> [V]"""
        penalty, window = self.options.repeat_penalty, self.options.repeat_window
        if penalty == 1 or window == 0 or not len(recent_ids):
            return logits
        recent = np.unique(np.asarray(recent_ids[-window:], np.int64))
        adjusted = logits.copy()
        values = adjusted[recent]
        adjusted[recent] = np.where(values > 0, values / penalty, values * penalty)
        return adjusted

    def _draw(self, logits: np.ndarray, position: int) -> int:
        ids, values = self._survivors(logits)  # [N], [N]
        scaled = (values - values.max()) / np.float32(self.options.temperature)
        cumulative = np.cumsum(np.exp(scaled), dtype=np.float64)
        point = self._uniform.at(position) * cumulative[-1]
        return int(ids[min(np.searchsorted(cumulative, point, side="right"), len(ids) - 1)])

    def _survivors(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and logits that pass top-k, top-p and min-p, [N] and [N]."""
        options = self.options
        ids, values = np.arange(logits.size), logits
        if 0 < options.top_k < logits.size:
            ids = _largest(logits, options.top_k)
            values = logits[ids]
        best = values.max()
        weights = np.exp(values - best)  # [N] unnormalised probabilities
        mass = options.top_p * weights.sum(dtype=np.float64)
        # min-p only compares with the best token, which top-p always keeps, so the two filters
        # commute; this one first leaves far less to sort.
        if options.min_p > 0:
            passing = np.flatnonzero(weights >= options.min_p)
            ids, values, weights = ids[passing], values[passing], weights[passing]
        if options.top_p < 1:
            nucleus = _nucleus(weights, mass)
            ids, values = ids[nucleus], values[nucleus]
        return ids, values


class _Uniform:
    """The random numbers of one seed by position.

    One generator is set to each position. Making one anew would ask the system for random bits
    that are not used, which takes six times as long.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(key=seed)
        self._state = self._generator.state

    def at(self, position: int) -> float:
        """Return the number of a position, 0 <= r < 1, a multiple of 2^-53."""
        self._state["state"]["counter"][0] = position
        self._generator.state = self._state  # its buffer is empty, so the counter counts
        return (self._generator.random_raw() >> 11) * 2.0**-53


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k largest of values [N], ascending; low indices win ties."""
    bound = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > bound)
    equal = np.flatnonzero(values == bound)[: k - above.size]
    return np.sort(np.concatenate([above, equal]))


def _nucleus(weights: np.ndarray, mass: float) -> np.ndarray:
    """Return the indices of the largest weights [N] whose sum first reaches ``mass``, ascending.

    Sorting a whole vocabulary takes tens of milliseconds. Instead the weights are dropped into
    bins by sign, exponent and 7 bits of fraction, which for float32 >= 0 is the upper half of the
    bit pattern and grows with the value. Only the bin where the sum crosses ``mass`` is sorted.
    """
    bins = weights.view(np.uint32) >> 16  # [N]
    mass_from = np.cumsum(np.bincount(bins, weights)[::-1])[::-1]  # of this bin and all above
    reaching = np.flatnonzero(mass_from >= mass)
    crossing = reaching[-1] if reaching.size else 0  # 0: only rounding keeps the sum below
    mass_above = mass_from[crossing + 1] if crossing + 1 < mass_from.size else 0.0
    border = np.flatnonzero(bins == crossing)
    border = border[np.argsort(-weights[border], kind="stable")]
    cumulative = np.cumsum(weights[border], dtype=np.float64)
    n_border = np.searchsorted(cumulative, mass - mass_above, side="left") + 1
    return np.sort(np.concatenate([np.flatnonzero(bins > crossing), border[:n_border]]))


def _logprob(logits: np.ndarray, token_id: int) -> float:
    best = logits.max()
    total = np.exp(logits - best).sum(dtype=np.float64)
    return float(logits[token_id] - best - np.log(total))
