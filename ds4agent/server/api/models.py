"""What ``/v1/models`` says: the one model that is loaded, with the fields that clients of OpenAI's
and of Anthropic's interfaces look for, under one path for both."""

from datetime import UTC, datetime
from typing import Any

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.request import MAX_OUTPUT, ServedModel

_PARAMETERS = (
    "tools tool_choice max_tokens temperature top_p top_k min_p stop seed stream reasoning_effort "
    "response_format"
).split()


def list_models(model: ServedModel) -> dict[str, Any]:
    """Return the list of models."""
    return {
        "object": "list",
        "data": [_described(model)],
        "has_more": False,
        "first_id": model.name,
        "last_id": model.name,
    }


def describe_model(model: ServedModel, name: str) -> dict[str, Any]:
    """Return one model by its id.

    Raises:
        ApiError: 404, it is not the loaded one.
    """
    if name != model.name:
        raise ApiError(
            f"There is no model {name[:80]!r} here, only {model.name}.",
            404,
            code="model_not_found",
        )
    return _described(model)


def _described(model: ServedModel) -> dict[str, Any]:
    created = datetime.fromtimestamp(model.created, UTC)
    longest = min(MAX_OUTPUT, model.context_length)
    return {
        "id": model.name,
        "object": "model",
        "type": "model",
        "created": model.created,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "owned_by": "ds4-server",
        "name": model.name,
        "display_name": model.name,
        "lifecycle": "active",
        "context_length": model.context_length,
        "max_input_tokens": model.context_length,
        "max_tokens": longest,
        "top_provider": {
            "context_length": model.context_length,
            "max_completion_tokens": longest,
            "is_moderated": False,
        },
        "supported_parameters": _PARAMETERS,
    }
