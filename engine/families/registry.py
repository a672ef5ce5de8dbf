"""From the architecture a file names to the family that computes it."""

import importlib
from threading import Event
from typing import Protocol

from engine.errors import ModelFileError
from engine.families.base import LoadProgress, Model
from engine.gguf_file import GgufFile
from mlx_kernels.ops import Ops

# Architecture -> module and class of its plan. Names, so that a family is imported when it is
# used.
_PLANS = {
    "llama": ("engine.families.llama.weights", "LlamaPlan"),
    "qwen2": ("engine.families.llama.weights", "LlamaPlan"),
    "qwen3": ("engine.families.llama.weights", "LlamaPlan"),
    "deepseek4": ("engine.families.deepseek_v4.plan", "DeepseekV4Plan"),
}


class ModelPlan(Protocol):
    """A checked file, before any weight is loaded."""

    family: str
    n_layers: int
    n_vocab: int
    ctx_train: int

    def weight_bytes(self, ops: Ops) -> int:
        """Memory of the weights on a device."""

    def cache_bytes(self, ops: Ops, n_tokens: int) -> int:
        """Memory of one session's state at ``n_tokens`` positions on a device."""

    def scratch_bytes(self, ops: Ops, ctx: int) -> int:
        """Memory that reading a chunk takes for a time, beyond what ``engine.memory`` allows any
        model."""

    def load(self, ops: Ops, progress: LoadProgress | None, cancel: Event | None) -> Model:
        """Load the weights. Raises LoadCancelled."""


def plan_for(gguf: GgufFile) -> ModelPlan:
    """Check a file and say what it takes to run it.

    Raises:
        ModelFileError: no family computes its architecture, or it is not a right file of it.
    """
    architecture = gguf.metadata.get("general.architecture")
    if architecture not in _PLANS:
        raise ModelFileError(
            f"{gguf.path.name} has architecture {architecture!r}, "
            f"supported are {', '.join(_PLANS)}",
            "Use a model of a supported architecture.",
        )
    module, name = _PLANS[architecture]
    return getattr(importlib.import_module(module), name).of(gguf)
