"""The payload codec of each model family."""

from sessions.dsv4_payload import DeepseekV4Payload
from sessions.errors import CheckpointError
from sessions.llama_payload import LlamaPayload
from sessions.payload import PayloadCodec

_CODECS: tuple[PayloadCodec, ...] = (LlamaPayload(), DeepseekV4Payload())


def codec_for_family(family: str) -> PayloadCodec:
    """Return the codec that writes states of ``family``."""
    for codec in _CODECS:
        if codec.family == family:
            return codec
    raise CheckpointError(
        f"states of the model family {family!r} can't be saved yet",
        "Use a model of another family to keep conversations.",
    )


def codec_for_model_id(model_id: int) -> PayloadCodec | None:
    """Return the codec that reads files with this header byte 7, if there is one."""
    return next((codec for codec in _CODECS if model_id in codec.model_ids), None)
