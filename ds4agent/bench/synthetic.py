"""Models of random weights in full shapes, to measure speed and memory without a model file.

Every tensor has the shape and type of the published file and valid random blocks, so the work is
that of the real model; the text would be noise. With fewer layers a token costs as much less:
times of 2 and of 6 layers give the cost of a layer and of the rest.
"""

from math import prod
from pathlib import Path

import numpy as np

from ds4agent.bench.random_weights import random_matrix
from ds4agent.errors import Ds4Error
from engine.engine import DEFAULT_CTX
from engine.errors import NotEnoughMemory
from engine.families.deepseek_v4.config import read_config
from engine.families.deepseek_v4.model import DeepseekV4Model
from engine.families.deepseek_v4.plan import DeepseekV4Plan
from engine.families.deepseek_v4.tensors import EMBEDDING, Part, needs
from engine.gguf_file import GgufFile, TensorInfo
from engine.memory import available_bytes, check_fits
from engine.session import Session
from engine.state import ModelInfo
from engine.tokenizer import Tokenizer
from mlx_kernels.blocks import BLOCK
from mlx_kernels.devices import open_random_ops

FLASH_LAYERS = 43
_TYPES = {block.name: type_id for type_id, block in BLOCK.items()}
_SEED = 20261203  # any; the same weights at every run

# As in the published files of DeepSeek V4 Flash.
_FLASH = {
    "context_length": 1 << 20,
    "embedding_length": 4096,
    "vocab_size": 129_280,
    "attention.head_count": 64,
    "attention.head_count_kv": 1,
    "attention.key_length": 512,
    "attention.value_length": 512,
    "attention.q_lora_rank": 1024,
    "attention.output_lora_rank": 1024,
    "attention.output_group_count": 8,
    "attention.sliding_window": 128,
    "attention.indexer.head_count": 64,
    "attention.indexer.key_length": 128,
    "attention.indexer.top_k": 512,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.compress_rope_freq_base": 160_000.0,
    "rope.dimension_count": 64,
    "rope.freq_base": 10_000.0,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 16.0,
    "rope.scaling.original_context_length": 65_536,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
    "expert_count": 256,
    "expert_used_count": 6,
    "expert_shared_count": 1,
    "expert_group_count": 0,
    "expert_feed_forward_length": 2048,
    "expert_weights_scale": 1.5,
    "expert_weights_norm": True,
    "hash_layer_count": 3,
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 20,
    "hyper_connection.epsilon": 1e-6,
}
# What a tensor's name contains -> its type in the q2 recipe; the first that fits.
_Q2_TYPES = (
    ("ffn_gate_tid2eid", "I32"),
    ("ffn_down_exps", "Q2_K"),
    ("_exps", "IQ2_XXS"),
    ("compressor", "F16"),
    ("indexer", "F16"),
    ("hc_", "F16"),
    ("ffn_gate_inp", "F16"),
    ("token_embd", "F16"),
    ("", "Q8_0"),
)


class SyntheticFile(GgufFile):
    """A model file that exists nowhere: its tensors are made when they are asked for.

    Attributes:
        has_values: Off: matrices of the network are zeros, for devices that make their own.
    """

    def __init__(self, name: str, n_layers: int) -> None:
        self.path = Path(name)
        self.has_values = True
        ratios = [0, 0, *(4 if i % 2 == 0 else 128 for i in range(2, FLASH_LAYERS))]
        self.metadata = {f"deepseek4.{key}": value for key, value in _FLASH.items()} | {
            "general.architecture": "deepseek4",
            "deepseek4.block_count": n_layers,
            "deepseek4.hash_layer_count": min(n_layers, _FLASH["hash_layer_count"]),
            "deepseek4.attention.compress_ratios": ratios[:n_layers],
            "deepseek4.swiglu_clamp_exp": [10.0] * n_layers,
        }
        self.tensors = {}
        for need in needs(read_config(self), Part(0, n_layers)):
            vector = len(need.shape) == 1
            kind = "F32" if vector else next(k for part, k in _Q2_TYPES if part in need.name)
            block = BLOCK[_TYPES[kind]]
            n_bytes = prod(need.shape) // block.n_values * block.n_bytes
            self.tensors[need.name] = TensorInfo(
                need.name, need.shape, _TYPES[kind], offset=0, n_bytes=n_bytes
            )
        self.n_bytes = sum(info.n_bytes for info in self.tensors.values())

    @property
    def fingerprint(self) -> str:
        """No weights that anybody else has."""
        return "0" * 40

    def data(self, name: str) -> np.ndarray:
        """Make a tensor: uint8 [n_bytes]."""
        info = self._info(name)
        random = np.random.default_rng([_SEED, *name.encode()])
        if info.type_id == _TYPES["I32"]:
            n_experts = _FLASH["expert_count"]
            ids = random.integers(0, n_experts, (info.shape[0], 1)) + np.arange(info.shape[1])
            return (ids % n_experts).astype(np.int32).reshape(-1).view(np.uint8)
        if len(info.shape) == 1:
            is_factor = "norm" in name or "scale" in name
            values = np.ones(info.shape) if is_factor else 0.1 * random.standard_normal(info.shape)
            return values.astype(np.float32).view(np.uint8)
        if not self.has_values and name != EMBEDDING:
            return np.zeros(info.n_bytes, np.uint8)  # memory that nobody touches is not taken
        shape = (prod(info.shape[:-1]), info.shape[-1])
        return random_matrix(info.type_id, shape, random, name).raw

    def read_ahead(self) -> None:
        """There is no disk."""

    def close(self) -> None:
        """There is no mapping."""


class SyntheticEngine:
    """As much of ``engine.engine.Engine`` as a measurement uses."""

    def __init__(self, model: DeepseekV4Model, info: ModelInfo) -> None:
        self._model = model
        self.info = info
        # Sessions have one; nothing is spelled here.
        self._tokenizer = Tokenizer(["!"], [], [1], "joyai-llm", eos_id=0)

    @classmethod
    def open(cls, name: str, device: str, ctx: int, n_layers: int | None) -> "SyntheticEngine":
        """Make the weights of a model on a device.

        Args:
            name: the only one, v4-flash-q2.
            device: a device name, ``auto`` included.
            ctx: context length, tokens; 0 for the usual one.
            n_layers: only the first so many; None: all.

        Raises:
            Ds4Error: there are not so many layers.
            NotEnoughMemory: the weights and the context do not fit.
        """
        n_layers = FLASH_LAYERS if n_layers is None else n_layers
        if n_layers > FLASH_LAYERS:
            raise Ds4Error(
                f"--layers {n_layers}, but {name} has {FLASH_LAYERS}", "Give a smaller number."
            )
        file = SyntheticFile(name, n_layers)
        plan, ctx = DeepseekV4Plan.of(file), ctx or DEFAULT_CTX
        ops, makes_weights = open_random_ops(device)
        file.has_values = not makes_weights
        free = available_bytes()
        if free is not None:
            free -= file.tensors[EMBEDDING].n_bytes  # which would stay in the file
        try:
            check_fits(plan, ops, ctx, free)
        except NotEnoughMemory as error:
            raise NotEnoughMemory(str(error), "Give fewer --layers.") from error
        info = ModelInfo(
            name=f"{name}, {n_layers} layers of random weights",
            family=plan.family,
            architecture="deepseek4",
            quant="q2",
            n_params=sum(prod(tensor.shape) for tensor in file.tensors.values()),
            n_layers=n_layers,
            n_vocab=plan.n_vocab,
            ctx_train=plan.ctx_train,
            ctx=ctx,
            path=file.path,
            file_bytes=file.n_bytes,
            fingerprint=file.fingerprint,
            device=ops.device,
        )
        return cls(plan.load(ops, None, None), info)

    def new_session(self) -> Session:
        """Start an empty conversation."""
        return Session(self._model, self._tokenizer, (), self.info.ctx, self.info.fingerprint)

    def close(self) -> None:
        """Give the weights back."""
        self._model.close()
        del self._model
