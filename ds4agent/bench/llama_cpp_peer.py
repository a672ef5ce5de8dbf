"""llama.cpp as a peer of ``model``, through the Python package xllamacpp, in this process.

The package runs llama.cpp's own server loop without its network part and tells its own timings.
Its prompt cache plays the part of our saved state: a prompt that begins with the one before is
read from there on.
"""

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ds4agent.bench.model import Timing
from ds4agent.errors import Ds4Error

_ALL_LAYERS = 999  # more than any model has


def check_installed() -> str:
    """Return the version of xllamacpp.

    Raises:
        Ds4Error: it is not installed.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise Ds4Error(
            "--compare llama.cpp needs the package xllamacpp, which is not installed",
            "Install it into this environment: pip install xllamacpp.",
        )
    return importlib.metadata.version("xllamacpp")


class LlamaCppRunner:
    """llama.cpp with a model loaded; ``ds4agent.bench.model.Runner``."""

    def __init__(self, server: Any) -> None:
        """Take a server that answers ``handle_completions(request) -> answer``."""
        self._server = server

    @classmethod
    def open(cls, path: Path, ctx: int, n_threads: int, is_gpu: bool) -> "LlamaCppRunner":
        """Load a model.

        Args:
            path: a GGUF file.
            ctx: context length in tokens.
            n_threads: threads for prompt and answer.
            is_gpu: compute all layers on the GPU, if llama.cpp was built for it.

        Raises:
            Ds4Error: xllamacpp is not installed or can't load the file.
        """
        check_installed()
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = ctx
        params.n_parallel = 1
        params.n_gpu_layers = _ALL_LAYERS if is_gpu else 0
        params.cpuparams.n_threads = n_threads
        params.cpuparams_batch.n_threads = n_threads
        params.ctx_shift = False
        params.cache_ram_mib = 0  # no copies of old prompts in memory
        params.verbosity = -1
        try:
            return cls(xllamacpp.Server(params))
        except RuntimeError as error:
            raise Ds4Error(
                f"llama.cpp can't load {path.name}: {error}", "Leave --compare out."
            ) from error

    def run(
        self, prompt: Sequence[int], contexts: Sequence[int], gen_tokens: int
    ) -> tuple[Timing, ...]:
        """See ``Runner``.

        Raises:
            Ds4Error: llama.cpp did other work than it was asked for, so rates can't be compared.
        """
        timings, n_before = [], 0
        for context in contexts:
            answer = self._server.handle_completions(
                {
                    "prompt": list(prompt[:context]),
                    # The first token comes with the prompt: it takes one more for as many
                    # forward passes of decoding as ours.
                    "n_predict": gen_tokens + 1,
                    "ignore_eos": True,
                    "temperature": 0.0,
                    "cache_prompt": n_before > 0,
                    "stream": False,
                }
            )
            timings.append(_timing(answer, context, context - n_before, gen_tokens))
            n_before = context
        return tuple(timings)

    def close(self) -> None:
        """See ``Runner``."""
        self._server = None


def _timing(answer: Any, context: int, prefill_tokens: int, gen_tokens: int) -> Timing:
    told = answer.get("timings") if isinstance(answer, dict) else None
    if told is None:
        raise Ds4Error(f"llama.cpp gave no timings: {str(answer)[:200]}", "Leave --compare out.")
    if (told["prompt_n"], told["predicted_n"]) != (prefill_tokens, gen_tokens + 1):
        raise Ds4Error(
            f"llama.cpp read {told['prompt_n']} and wrote {told['predicted_n']} tokens, "
            f"expected {prefill_tokens} and {gen_tokens + 1}",
            "Give other --contexts.",
        )
    return Timing(
        context, prefill_tokens, told["prompt_ms"] / 1e3, gen_tokens, told["predicted_ms"] / 1e3
    )
