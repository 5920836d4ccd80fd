"""The official clients against the gateway in front of real vLLM servers, as their users write it."""

from importlib.util import find_spec

import anthropic
import openai
import pytest

if find_spec("vllm") is None:
    pytest.skip("vLLM is not installed", allow_module_level=True)
pytestmark = [pytest.mark.e2e, pytest.mark.vllm]

from fairhit.local.engine_process import HOST  # noqa: E402
from tests.e2e.paths.conftest import EMBEDS, KEY, WRITES, Pair  # noqa: E402

# Anthropic's client has no name for it any more.
GREEDY = {"temperature": 0}
TOOL = {
    "type": "function",
    "function": {"name": "turn", "parameters": {"type": "object", "properties": {"to": {}}}},
}


@pytest.fixture
def by_openai(pair: Pair) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://{HOST}:{pair.gateway}/v1", api_key=KEY, max_retries=0)


@pytest.fixture
def by_anthropic(pair: Pair) -> anthropic.Anthropic:
    url = f"http://{HOST}:{pair.gateway}"
    return anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)


def test_chat_streams(by_openai: openai.OpenAI):
    stream = by_openai.chat.completions.create(
        model=WRITES, messages=[{"role": "user", "content": "hello"}], max_tokens=12, stream=True
    )
    chunks = list(stream)

    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)


def test_tools_arrive(by_openai: openai.OpenAI):
    """A model of random weights fills in no arguments, but must begin with the tool it was given."""
    answer = by_openai.chat.completions.create(
        model=WRITES,
        messages=[{"role": "user", "content": "where to?"}],
        tools=[TOOL],
        tool_choice="required",
        max_tokens=20,
    )
    message = answer.choices[0].message

    assert "turn" in str(message.tool_calls or message.content)


def test_models_are_listed_and_found(by_openai: openai.OpenAI):
    assert {model.id for model in by_openai.models.list()} == {WRITES, EMBEDS}
    assert by_openai.models.retrieve(EMBEDS).id == EMBEDS
    with pytest.raises(openai.NotFoundError) as unknown:
        by_openai.models.retrieve("other")
    assert unknown.value.code == "model_not_found"


def test_embeddings_come_from_the_model_that_makes_them(by_openai: openai.OpenAI):
    made = by_openai.embeddings.create(model=EMBEDS, input=["hello", "hello"])

    assert made.data[0].embedding == made.data[1].embedding
    assert len(made.data[0].embedding) == 256
    with pytest.raises(openai.NotFoundError):
        by_openai.embeddings.create(model=WRITES, input="hello")


def test_responses_whole_and_streamed(by_openai: openai.OpenAI):
    whole = by_openai.responses.create(
        model=WRITES, input="hello", max_output_tokens=5, temperature=0
    )
    with by_openai.responses.stream(
        model=WRITES, input="hello", max_output_tokens=5, temperature=0
    ) as stream:
        kinds = [event.type for event in stream]
        stream_format = stream.get_final_response()

    assert stream_format.output_text == whole.output_text
    assert stream_format.usage is not None
    assert stream_format.usage.output_tokens == 5
    assert kinds[0] == "response.created"
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        by_openai.responses.create(model=WRITES, input="x", previous_response_id=whole.id)


def test_messages_whole_streamed_and_counted(by_anthropic: anthropic.Anthropic):
    asked = [{"role": "user", "content": "hello"}]
    whole = by_anthropic.messages.create(
        model=WRITES, max_tokens=5, messages=asked, extra_body=GREEDY
    )
    with by_anthropic.messages.stream(
        model=WRITES, max_tokens=5, messages=asked, extra_body=GREEDY
    ) as stream:
        text = "".join(stream.text_stream)
        stream_format = stream.get_final_message()

    assert whole.content[0].text == text == stream_format.content[0].text
    assert stream_format.usage.output_tokens == 5
    counted = by_anthropic.messages.count_tokens(model=WRITES, messages=asked)
    assert counted.input_tokens == whole.usage.input_tokens


def test_strangers_and_unknown_models_are_refused(
    pair: Pair, by_anthropic: anthropic.Anthropic, by_openai: openai.OpenAI
):
    asked = [{"role": "user", "content": "hello"}]
    stranger = anthropic.Anthropic(base_url=f"http://{HOST}:{pair.gateway}", api_key="guess")

    with pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(model=WRITES, max_tokens=5, messages=asked)
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        by_anthropic.messages.create(model="other", max_tokens=5, messages=asked)
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        by_openai.chat.completions.create(model="other", messages=asked)
