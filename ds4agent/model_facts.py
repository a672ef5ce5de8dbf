"""What a model file holds, and whether this machine and this program can use it."""

from collections import Counter
from collections.abc import Callable
from math import prod
from pathlib import Path

from ds4agent.models import gigabytes
from ds4agent.plain import one_line
from engine.chat.registry import chat_format_for
from engine.engine import DEFAULT_CTX
from engine.errors import EngineError, ModelFileError
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from engine.memory import available_bytes, check_fits
from engine.tokenizer import Tokenizer
from mlx_kernels.blocks import BLOCK
from mlx_kernels.devices import open_ops
from mlx_kernels.errors import KernelError
from mlx_kernels.ops import Ops


def describe(
    path: Path,
    device: str = "auto",
    free_memory: Callable[[], int | None] = available_bytes,
) -> tuple[list[str], bool]:
    """Return lines for a person, and whether the file can be used on this machine.

    Nothing is loaded: the header, the vocabulary and the plan of the network are looked at.

    Raises:
        ModelFileError: it is no readable GGUF file.
    """
    gguf = GgufFile.open(path)
    try:
        facts = _facts(gguf)
        problems = _problems(gguf, facts, device, free_memory())
    finally:
        gguf.close()
    facts["usable here"] = "no: " + "; ".join(problems) if problems else "yes"
    # Names and licences are what somebody wrote into the file.
    return [f"{label + ':':14}{one_line(text, 500)}" for label, text in facts.items()], not problems


def _facts(gguf: GgufFile) -> dict[str, str]:
    meta = gguf.metadata
    architecture = str(meta.get("general.architecture", "not told"))
    n_params = sum(prod(tensor.shape) for tensor in gguf.tensors.values())
    types = Counter(BLOCK[tensor.type_id][0] for tensor in gguf.tensors.values())
    context = meta.get(f"{architecture}.context_length", 0)
    vocabulary = meta.get("tokenizer.ggml.tokens", [])
    listed = ", ".join(f"{name} {count}" for name, count in types.most_common())
    return {
        "file": str(gguf.path),
        "name": str(meta.get("general.name", "not told")),
        "architecture": architecture,
        "quantisation": gguf.quant_name,
        "parameters": f"{n_params / 1e6:,.0f} million",
        "size": f"{gigabytes(gguf.n_bytes)} ({gguf.n_bytes:,} bytes)",
        "context": f"{_number(context)} tokens in training",
        "tensors": f"{len(gguf.tensors)}: {listed}",
        "vocabulary": f"{_number(len(vocabulary) if isinstance(vocabulary, list) else 0)} tokens",
        "licence": str(meta.get("general.license", "not told")),
    }


def _number(value: object) -> str:
    """Write a number with its thousands apart; whatever else a file may hold there, as it is."""
    return f"{value:,}" if isinstance(value, int) else repr(value)


def _problems(
    gguf: GgufFile, facts: dict[str, str], device: str, free_bytes: int | None
) -> list[str]:
    """Run the checks of loading that cost nothing, and add what they find to ``facts``."""
    problems = []
    try:
        architecture = str(gguf.metadata.get("general.architecture"))
        chat = chat_format_for(architecture, Tokenizer.from_gguf(gguf), gguf.metadata)
        facts["chat format"] = chat.name
    except EngineError as error:
        problems.append(str(error))
    try:
        plan = plan_for(gguf)
    except ModelFileError as error:
        return [*problems, str(error)]
    ops = _ops(device, problems)
    ctx = min(plan.ctx_train, DEFAULT_CTX)
    needed = plan.weight_bytes(ops) + plan.cache_bytes(ops, ctx)
    facts["memory"] = f"{gigabytes(needed)} on {ops.device}, with a context of {ctx:,} tokens"
    try:
        check_fits(plan, ops, ctx, free_bytes)
    except EngineError as error:
        problems.append(str(error))
    return problems


def _ops(device: str, problems: list[str]) -> Ops:
    try:
        return open_ops(device)
    except KernelError as error:
        problems.append(str(error))
        return open_ops("cpu")
