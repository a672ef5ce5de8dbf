"""``previous_response_id`` of the official package against the real server."""

import pytest

openai = pytest.importorskip("openai", reason="needs the package openai")


def test_response_goes_on_from_an_earlier_one(openai_client: "openai.OpenAI") -> None:
    create = openai_client.responses.create
    first = create(model="scripted", input="hello")
    second = create(model="scripted", input="four", previous_response_id=first.id)
    assert (first.output_text, second.output_text) == ("Good day to you.", "You said four.")
    # The whole of the first turn is in the second prompt, and none of it was read again.
    n_first = first.usage.total_tokens
    assert second.usage.input_tokens > n_first
    assert second.usage.input_tokens_details.cached_tokens >= n_first - 1
    with openai_client.responses.stream(
        model="scripted", input="hello", previous_response_id=second.id
    ) as stream:
        third = stream.get_final_response()
    assert third.output_text == "Good day to you." and third.previous_response_id == second.id
    with pytest.raises(openai.BadRequestError) as caught:
        create(model="scripted", input="x", previous_response_id="resp_0")
    assert caught.value.code == "previous_response_not_found"
