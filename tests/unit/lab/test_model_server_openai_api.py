"""The stand-in reads completion requests as vLLM does."""

import json

import pytest

from lab.stand_ins.model_server.openai_api import ApiError, parse


def read(request: object, *, chat: bool = False, max_model_len: int = 100):
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    return parse(body, chat=chat, served=("served", "alias"), max_model_len=max_model_len)


def talk(*contents, **more):
    return {"messages": [{"role": "user", "content": content} for content in contents], **more}


@pytest.mark.parametrize(
    ("request_", "prompt", "output"),
    [
        ({"prompt": "12345678"}, 2, 16),
        ({"prompt": "123456789", "max_tokens": 1}, 3, 1),
        ({"prompt": ["12345678"], "max_tokens": 7}, 2, 7),
        ({"prompt": [5, 6, 7], "max_tokens": 97}, 3, 97),
        ({"prompt": [[5, 6, 7, 8]], "ignore_eos": True, "temperature": 0}, 4, 16),
        ({"prompt": "äöü"}, 2, 16),
    ],
)
def test_prompts_are_counted_by_id_or_by_bytes(request_, prompt, output):
    completion = read({"model": "alias", **request_})
    assert (completion.prompt_tokens, completion.output_tokens) == (prompt, output)
    assert completion.finish_reason == "length"
    assert completion.model == "alias"


@pytest.mark.parametrize(
    ("request_", "prompt", "output", "reason"),
    [
        (talk("12345678", max_completion_tokens=5, max_tokens=9), 6, 5, "length"),
        (talk("12345678", "1234", max_tokens=9), 11, 9, "length"),
        (talk([{"type": "text", "text": "1234"}, {"type": "text", "text": "5678"}], max_tokens=9), 6, 9, "length"),
        (talk("1234"), 5, 64, "stop"),
        (talk("1" * 300), 79, 21, "length"),
    ],
)
def test_a_chat_counts_its_messages_and_ends_by_itself_without_a_limit(request_, prompt, output, reason):
    completion = read(request_, chat=True)
    assert (completion.prompt_tokens, completion.output_tokens) == (prompt, output)
    assert completion.finish_reason == reason


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (b"{", "JSON decode error"),
        (b"[]", "not a JSON object"),
        ({}, "prompt must be"),
        ({"prompt": ""}, "non-empty"),
        ({"prompt": []}, "non-empty"),
        ({"prompt": ["a", "b"]}, "prompt must be"),
        ({"prompt": [1, -1]}, "prompt must be"),
        ({"prompt": "a", "max_tokens": 0}, "at least 1"),
        ({"prompt": "a", "max_tokens": "5"}, "wrong type"),
        ({"prompt": "a", "stream": 1}, "wrong type"),
        ({"prompt": "a", "temperature": -1}, "non-negative"),
        ({"prompt": "a", "n": 2}, "one choice"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "only be defined when"),
        ({"prompt": [1] * 100}, "maximum context length is 100 tokens"),
        ({"prompt": [1] * 50, "max_tokens": 51}, "for a total of 101 tokens"),
    ],
)
def test_a_bad_request_is_400_in_openais_shape(request_, says):
    with pytest.raises(ApiError) as refused:
        read(request_)
    error = json.loads(refused.value.body)["error"]
    assert (refused.value.status, error["code"], error["type"]) == (400, 400, "BadRequestError")
    assert says in error["message"]


@pytest.mark.parametrize("messages", [None, [], "hi", [{"content": "x"}], [{"role": "user", "content": [1]}]])
def test_a_chat_without_proper_messages_is_400(messages):
    with pytest.raises(ApiError) as refused:
        read({"messages": messages}, chat=True)
    assert refused.value.status == 400


def test_a_model_that_is_not_served_is_404():
    with pytest.raises(ApiError) as refused:
        read({"model": "other", "prompt": "a"})
    error = json.loads(refused.value.body)["error"]
    assert (refused.value.status, error["type"], error["param"]) == (404, "NotFoundError", "model")
    assert error["message"] == "The model `other` does not exist."


def test_the_longest_request_that_fits_is_taken():
    assert read({"prompt": [1] * 50, "max_tokens": 50}).output_tokens == 50
