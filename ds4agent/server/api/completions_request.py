"""Reading a request of the legacy Completions interface.

The prompt becomes the message of a person after a short system text, as in antirez/ds4: these
models were trained on conversations only. There is no thinking.
"""

from ds4agent.server.api.chat_request import refuse_what_is_missing
from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.fields import Fields, wrong
from ds4agent.server.api.request import Api, ApiRequest, ServedModel
from ds4agent.server.api.settings import read_limit, read_sampling, read_stop
from engine.chat.conversation import Conversation, Message

_SYSTEM = "You are a helpful assistant"


def parse_completion(fields: Fields, model: ServedModel) -> ApiRequest:
    """Read and check a request.

    Raises:
        ApiError: it can't be answered.
    """
    refuse_what_is_missing(fields)
    for name in ("echo", "suffix"):
        if fields.get(name):
            raise ApiError(f"{name} is not supported, leave it out.", param=name)
    if fields.get("best_of") not in (None, 1):
        raise ApiError("best_of is not supported, expected 1.", param="best_of")
    options = fields.object("stream_options")
    messages = (Message("system", _SYSTEM), Message("user", _prompt(fields)))
    return ApiRequest(
        Api.COMPLETIONS,
        fields.text("model", model.name),
        Conversation(messages),
        read_sampling(fields, model, thinking=False, tools=False),
        read_limit(fields, "max_tokens"),
        read_stop(fields, "stop"),
        fields.boolean("stream"),
        options is not None and options.boolean("include_usage"),
    )


def _prompt(fields: Fields) -> str:
    value = fields.get("prompt")
    if value is None:
        raise ApiError("missing prompt", param="prompt")
    if isinstance(value, list):
        if len(value) != 1:
            raise ApiError(f"prompt has {len(value)} entries, expected one text.", param="prompt")
        value = value[0]
    if not isinstance(value, str):
        raise wrong("prompt", value, "a text")
    return value
