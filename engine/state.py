"""Plain data that crosses the engine's boundary: tokens, reports, saved states, model facts."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a person may want to know about a loaded model."""

    name: str  # general.name of the file, or its stem
    family: str  # "llama", "deepseek_v4"
    architecture: str  # general.architecture of the GGUF: "llama", "qwen2", "qwen3"
    quant: str  # "Q4_K_M", or the most frequent tensor type
    n_params: int
    n_layers: int
    n_vocab: int
    ctx_train: int  # context length the model was trained for, tokens
    ctx: int  # context length of this engine, tokens
    path: Path
    file_bytes: int
    fingerprint: str  # hex; equal for equal weights, see gguf_file.fingerprint
    device: str  # "cpu", "mlx-cpu", "metal", "cuda"


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What one ``Session.sync`` cost."""

    reused: int  # tokens that were already in the state
    prefilled: int  # tokens that had to be computed
    seconds: float = 0.0
    cancelled: bool = False  # stopped between chunks; the state holds what was done so far


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token."""

    id: int
    data: bytes  # the token's own bytes; may be half a UTF-8 sequence; b"" for control tokens
    logprob: float  # natural log of its probability under the unmodified distribution
    is_stop: bool = False  # an end-of-turn token: the last one of a generation


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything needed to go on: independent of device, backend and process.

    ``arrays`` is defined by the family. For ``llama``: ``layers.<i>.k`` and ``layers.<i>.v``,
    float16 [T, Hkv, D], keys already rotated. For ``deepseek_v4``: ``layers.<i>.`` before the
    names of ``mlx_kernels.deepseek_v4_ops.LayerState.arrays``.
    """

    family: str
    fingerprint: str
    ctx: int
    tokens: tuple[int, ...]
    logits: np.ndarray  # [V] float32, for the token after the last; shape [0] when tokens is empty
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    expert_bits: int = 0  # class of a mixture's experts, 2 or 4 bits; 0 where there are none


@dataclass(frozen=True, slots=True)
class StateDelta:
    """What a ``SessionState`` has beyond its first ``kept`` tokens.

    ``arrays`` has every array of the state from the row in ``first_rows`` on; that is 0 for an
    array that changes as a whole.
    """

    family: str
    fingerprint: str
    ctx: int
    kept: int  # tokens whose settled rows are not in here
    tokens: tuple[int, ...]  # the others
    logits: np.ndarray  # [V] float32, for the token after the last
    arrays: dict[str, np.ndarray]
    first_rows: dict[str, int]

    @property
    def n_tokens(self) -> int:
        """Tokens of the whole state."""
        return self.kept + len(self.tokens)
