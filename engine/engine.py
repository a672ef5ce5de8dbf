"""A loaded model: weights on a device, its tokenizer and its chat format.

Loading checks first and pays later: the file, the architecture, every tensor's shape, the
vocabulary, the chat format and the memory are looked at before the first weight is decoded.

    with Engine.open("model.gguf") as engine:
        session = engine.new_session()
        session.sync(engine.chat.render([User("Hello"), AssistantOpen()]))
        for token in session.generate(SamplingOptions(), max_tokens=100):
            ...
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from threading import Event
from typing import Self

import numpy as np

from engine.chat.format import ChatFormat
from engine.chat.registry import chat_format_for
from engine.errors import ContextFull, ModelFileError
from engine.families.base import Cache, LoadProgress, Model
from engine.families.registry import ModelPlan, plan_for
from engine.gguf_file import GgufFile
from engine.memory import available_bytes, check_fits
from engine.session import DEFAULT_CHUNK_TOKENS, Session
from engine.state import ModelInfo, SessionState
from engine.tokenizer import Tokenizer
from mlx_kernels.devices import open_ops
from mlx_kernels.ops import Ops

DEFAULT_CTX = 8192  # tokens; enough for a coding task, and some 0.5 GiB of keys and values
_GPU_CHUNK_TOKENS = 512  # of prefill: enough rows to keep a GPU busy


class Engine:
    """A model that is ready to run. One thread uses it and its sessions at a time.

    Attributes:
        info: Facts about the model.
        tokenizer: Its vocabulary.
        chat: How conversations are written as its tokens.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, chat: ChatFormat, info: ModelInfo
    ) -> None:
        self.info = info
        self.tokenizer = tokenizer
        self.chat = chat
        self._model: Model | None = model
        self._gguf: GgufFile | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        device: str = "auto",
        ctx: int = 0,
        progress: LoadProgress | None = None,
        cancel: Event | None = None,
        *,
        free_memory: Callable[[], int | None] = available_bytes,
        n_sessions: int = 1,
        n_copies: int = 0,
    ) -> Self:
        """Load a model file.

        Args:
            path: A GGUF file.
            device: One of ``mlx_kernels.devices.DEVICES``.
            ctx: Context length in tokens; 0 for the model's own, at most ``DEFAULT_CTX``.
            progress: Called with bytes of the file decoded and to decode.
            cancel: Looked at between tensors.
            free_memory: Asked once for the bytes that may be used.
            n_sessions: Sessions that have to fit at the same time.
            n_copies: Copies of sessions that have to fit beside them; see ``check_fits``.

        Raises:
            ModelFileError: the file is not one that can be run.
            DeviceError: the device does not exist here (``mlx_kernels.errors``).
            NotEnoughMemory: the weights and the context do not fit.
            LoadCancelled: ``cancel`` was set.
        """

        def check(plan: ModelPlan, ops: Ops, ctx: int) -> None:
            check_fits(plan, ops, ctx, free_memory(), n_sessions, n_copies)

        gguf = GgufFile.open(path)
        try:
            engine = cls._open(gguf, device, ctx, progress, cancel, check)
        except BaseException:
            gguf.close()
            raise
        engine._gguf = gguf
        return engine

    @classmethod
    def _open(
        cls,
        gguf: GgufFile,
        device: str,
        ctx: int,
        progress: LoadProgress | None,
        cancel: Event | None,
        check: Callable[[ModelPlan, Ops, int], None],
    ) -> Self:
        plan = plan_for(gguf)
        ctx = _context_length(gguf, plan.ctx_train, ctx)
        tokenizer = Tokenizer.from_gguf(gguf)
        if tokenizer.n_vocab > plan.n_vocab:
            raise ModelFileError(
                f"{gguf.path.name} names {tokenizer.n_vocab} tokens, but its output matrix "
                f"has {plan.n_vocab} rows",
                "Get another conversion of the model.",
            )
        architecture = str(gguf.metadata["general.architecture"])
        chat = chat_format_for(architecture, tokenizer, gguf.metadata)
        ops = open_ops(device)
        check(plan, ops, ctx)
        info = ModelInfo(
            name=str(gguf.metadata.get("general.name") or gguf.path.stem),
            family=plan.family,
            architecture=architecture,
            quant=gguf.quant_name,
            n_params=sum(prod(info.shape) for info in gguf.tensors.values()),
            n_layers=plan.n_layers,
            n_vocab=plan.n_vocab,
            ctx_train=plan.ctx_train,
            ctx=ctx,
            path=gguf.path,
            file_bytes=gguf.n_bytes,
            fingerprint=gguf.fingerprint,
            device=ops.device,
        )
        return cls(plan.load(ops, progress, cancel), tokenizer, chat, info)

    def new_session(self) -> Session:
        """Start an empty conversation."""
        is_gpu = self.info.device in ("metal", "cuda")
        return Session(
            self._loaded(),
            self.tokenizer,
            self.chat.stop_ids | frozenset(self.tokenizer.eos_ids),
            self.info.ctx,
            self.info.fingerprint,
            _GPU_CHUNK_TOKENS if is_gpu else DEFAULT_CHUNK_TOKENS,
        )

    def restore(self, state: SessionState, *, consume: bool = False) -> Session:
        """Continue a saved conversation, bit by bit. ``consume``: see ``Session.load``.

        Raises:
            StateMismatch: it was saved with another model, or does not fit this context.
        """
        session = self.new_session()
        session.load(state, consume=consume)
        return session

    def logits_of(
        self,
        tokens: Sequence[int],
        n_prefill: int | None = None,
        *,
        debug_cache_rounding: bool = True,
    ) -> np.ndarray:
        """Compute the logits after every token of a text, [T, V] float32, in a state of its own.

        For tests and perplexity: T times V floats. The first ``n_prefill`` tokens go through the
        network in one call, the others one by one; None: all in chunks.
        ``debug_cache_rounding`` off: cached rows stay as computed, to compare with networks that
        do not simulate the rounding that DeepSeek V4 was trained with.

        Raises:
            ContextFull: there are more tokens than the context holds.
            ModelFileError: rounding is to be off, and the family has none.
        """
        if len(tokens) > self.info.ctx:
            raise ContextFull(
                f"{len(tokens)} tokens do not fit into the context of {self.info.ctx}",
                "Give fewer tokens, or open the model with more --ctx.",
            )
        model = self._loaded()
        cache = self._new_cache(model, debug_cache_rounding)
        parts = [np.zeros((0, model.n_vocab), np.float32)]
        stops = range(
            DEFAULT_CHUNK_TOKENS, len(tokens) + DEFAULT_CHUNK_TOKENS, DEFAULT_CHUNK_TOKENS
        )
        if n_prefill is not None:
            stops = range(n_prefill or 1, len(tokens) + 1)
        for start, stop in pairwise([0, *stops]):
            ids = np.asarray(tokens[start:stop], np.int32)
            hidden = model.layers(0, model.n_layers, model.embed(ids), cache, ids)
            parts.append(model.head(hidden))
        return np.concatenate(parts)

    def _new_cache(self, model: Model, rounds: bool) -> Cache:
        if rounds:
            return model.new_cache(self.info.ctx)
        if not hasattr(model, "debug_cache_rounding"):
            raise ModelFileError(
                f"a {self.info.family} network has no rounding of cached rows to turn off",
                "Leave --no-cache-rounding out, or use a DeepSeek V4 model.",
            )
        model.debug_cache_rounding = False
        try:
            return model.new_cache(self.info.ctx)
        finally:
            model.debug_cache_rounding = True

    def close(self) -> None:
        """Give weights and file back. Sessions of this engine keep the weights until they go."""
        if self._model is not None:
            self._model.close()
        self._model = None
        if self._gguf is not None:
            self._gguf.close()
            self._gguf = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _loaded(self) -> Model:
        if self._model is None:
            raise ValueError("the engine is closed")
        return self._model


def _context_length(gguf: GgufFile, ctx_train: int, asked: int) -> int:
    if asked < 0 or asked > ctx_train:
        raise ModelFileError(
            f"a context of {asked} tokens was asked for, {gguf.path.name} is made for {ctx_train}",
            f"Use --ctx with a number from 1 to {ctx_train}.",
        )
    return asked or min(ctx_train, DEFAULT_CTX)
