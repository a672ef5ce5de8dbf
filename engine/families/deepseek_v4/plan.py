"""A checked DeepSeek V4 file: what it will cost on a device, and the way to load it."""

from dataclasses import dataclass
from threading import Event

from engine.errors import ModelFileError
from engine.families.base import LoadProgress
from engine.families.deepseek_v4.config import DeepseekV4Config, read_config
from engine.families.deepseek_v4.model import DeepseekV4Model
from engine.families.deepseek_v4.scratch import SMALLEST_CHUNK, bytes_per_position
from engine.families.deepseek_v4.tensors import EMBEDDING, Part, check_part, needs
from engine.families.deepseek_v4.weights import as_matrix, load_weights
from engine.families.loading import WeightLoader
from engine.gguf_file import GgufFile
from mlx_kernels.blocks import BLOCK
from mlx_kernels.ops import Ops

_FOUR_BITS = ("Q4_K", "MXFP4")  # what antirez/ds4 counts as 4-bit experts
_EXACT = ("hc_", "compressor", "indexer", "ffn_gate_inp")  # in the names of exact matrices


@dataclass(frozen=True, slots=True)
class DeepseekV4Plan:
    """A file, or a part of its layers, before any weight is loaded (``ModelPlan``)."""

    gguf: GgufFile
    config: DeepseekV4Config
    part: Part
    family: str = "deepseek_v4"

    @classmethod
    def of(cls, gguf: GgufFile, part: Part | None = None) -> "DeepseekV4Plan":
        """Check a file; ``part`` is what will be loaded of it, everything if None.

        Raises:
            ModelFileError: its metadata or tensors are not those of this family.
        """
        config = read_config(gguf)
        part = part or Part(0, config.n_layers)
        if not 0 <= part.first < part.last <= config.n_layers:
            raise ModelFileError(
                f"layers {part.first} to {part.last} were asked for, "
                f"{gguf.path.name} describes {config.n_layers}",
                f"Name layers from 0 to {config.n_layers}.",
            )
        check_part(gguf, config, part)
        return cls(gguf, config, part)

    @property
    def n_layers(self) -> int:
        """Layers of the network."""
        return self.config.n_layers

    @property
    def n_vocab(self) -> int:
        """Rows of the output matrix."""
        return self.config.n_vocab

    @property
    def ctx_train(self) -> int:
        """Context the model was trained for, tokens."""
        return self.config.ctx_train

    def weight_bytes(self, ops: Ops) -> int:
        """Memory of the weights on a device. The embedding stays packed in the file."""
        v4, total = ops.deepseek_v4(), 0
        for need in needs(self.config, self.part):
            info = self.gguf.tensors[need.name]
            if need.name == EMBEDDING:
                continue
            if len(info.shape) == 1 or "tid2eid" in need.name:
                total += info.n_bytes
            elif "_exps" in need.name:
                total += v4.experts_bytes(info.type_id, as_matrix(info.shape))
            elif any(mark in need.name for mark in _EXACT):
                total += v4.exact_matrix_bytes(info.type_id, as_matrix(info.shape))
            else:
                total += ops.matrix_bytes(info.type_id, info.shape)
        return total

    def cache_bytes(self, ops: Ops, n_tokens: int) -> int:
        """Memory of a session's state on a device."""
        v4, shape = ops.deepseek_v4(), self.config.shape
        ratios = self.config.ratios[self.part.first : self.part.last]
        return sum(v4.state_bytes(shape, ratio, n_tokens) for ratio in ratios)

    def scratch_bytes(self, ops: Ops, ctx: int) -> int:
        """Memory of the shortest chunk's activations, all in float32, from the shapes."""
        ratios = self.config.ratios[self.part.first : self.part.last]
        return SMALLEST_CHUNK * bytes_per_position(self.config, ratios, ctx)

    def load(
        self, ops: Ops, progress: LoadProgress | None, cancel: Event | None
    ) -> DeepseekV4Model:
        """Hand every weight to the device.

        Raises:
            LoadCancelled: ``cancel`` was set; it is looked at between tensors.
        """
        names = [need.name for need in needs(self.config, self.part) if need.name != EMBEDDING]
        total = sum(self.gguf.tensors[name].n_bytes for name in names)
        loader = WeightLoader(self.gguf, ops, total, progress, cancel)
        weights = load_weights(loader, self.config, self.part, ops.deepseek_v4())
        gate = self.gguf.tensors[f"blk.{self.part.first}.ffn_gate_exps.weight"].type_id
        bits = 4 if BLOCK[gate].name in _FOUR_BITS else 2
        return DeepseekV4Model(self.config, weights, ops, bits)
