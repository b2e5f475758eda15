"""What OpenAI-style requests ask for, and the JSON that answers them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Without a tokenizer: one token per started four bytes of UTF-8, the estimate that the endpoint picker also makes
# (before it rounds up to blocks). Token-id prompts are exact.
BYTES_PER_TOKEN = 4
# A chat template wraps each message in a few tokens (role and separators); Qwen3's takes about this many.
TOKENS_PER_MESSAGE = 4

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions
# A chat without a limit ends where a model would say its end-of-sequence token; the stand-in ends it here.
CHAT_ANSWER_TOKENS = 64

_FILLER = (" the", " light", " of", " a", " quiet", " morning", " falls", " on", " green", " hills", " and", " rivers")


class ApiError(Exception):
    """An answer other than 200, in OpenAI's error shape."""

    def __init__(self, status: HTTPStatus, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = json.dumps({"error": {"message": message, "type": kind, "param": param, "code": int(status)}})


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A completion request, checked. `finish_reason` is what its last token will carry."""

    chat: bool
    model: str
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    finish_reason: str
    stream: bool
    include_usage: bool
    kv_transfer_params: Mapping[str, Any] | None


def bad_request(message: str, param: str | None = None) -> ApiError:
    """400, as vLLM words its type."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, "BadRequestError", param)


def parse(body: bytes, *, chat: bool, served: Sequence[str], max_model_len: int) -> Completion:
    """Read one request body.

    Raises:
        ApiError: 400 for what is malformed or too long, 404 for a model that is not served here.
    """
    try:
        request = json.loads(body)
    except ValueError as error:
        raise bad_request(f"JSON decode error: {error}") from error
    if not isinstance(request, dict):
        raise bad_request("the body is not a JSON object")
    model = request.get("model") or served[0]
    if model not in served:
        raise ApiError(HTTPStatus.NOT_FOUND, f"The model `{model}` does not exist.", "NotFoundError", "model")
    prompt = _chat_tokens(request) if chat else _prompt_tokens(request)
    stream = _typed(request, "stream", bool, default=False)
    stream_options = _typed(request, "stream_options", dict, default={})
    if stream_options and not stream:
        raise bad_request("Stream options can only be defined when `stream=True`.", "stream_options")
    if _typed(request, "temperature", (int, float), default=1.0) < 0:
        raise bad_request("temperature must be non-negative", "temperature")
    if _typed(request, "n", int, default=1) != 1:
        raise bad_request("this server answers with one choice: n must be 1", "n")
    asked = _asked_tokens(request, chat=chat)
    room = max_model_len - prompt
    if prompt >= max_model_len or (asked is not None and asked > room):
        raise bad_request(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {asked or 1} "
            f"output tokens and your prompt contains {prompt} input tokens, for a total of {prompt + (asked or 1)} "
            "tokens. "
            "Please reduce the length of the input prompt or the number of requested output tokens.",
            "max_tokens",
        )
    # Without a limit a chat may use all the room, but a model ends its answer long before.
    until_end = asked is None and chat
    output = asked or (min(CHAT_ANSWER_TOKENS, room) if chat else min(DEFAULT_COMPLETION_TOKENS, room))
    return Completion(
        chat=chat,
        model=model,
        prompt_tokens=prompt,
        output_tokens=output,
        max_tokens=room if until_end else output,
        finish_reason="stop" if until_end and output < room else "length",
        stream=stream,
        include_usage=bool(stream_options.get("include_usage")),
        kv_transfer_params=_typed(request, "kv_transfer_params", dict, default=None),
    )


def count_tokens(text: str) -> int:
    """Tokens of a text: its UTF-8 bytes / 4, rounded up."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def filler(first: int, count: int) -> str:
    """`count` tokens of harmless text, the first of them being token number `first` of its answer."""
    return "".join(_FILLER[number % len(_FILLER)] for number in range(first, first + count))


def usage(completion: Completion, generated: int) -> dict[str, object]:
    """OpenAI's usage object."""
    return {
        "prompt_tokens": completion.prompt_tokens,
        "total_tokens": completion.prompt_tokens + generated,
        "completion_tokens": generated,
        "prompt_tokens_details": None,
    }


def answer(
    completion: Completion,
    identity: Mapping[str, object],
    generated: int,
    finish_reason: str,
    kv_transfer_params: Mapping[str, Any] | None,
) -> bytes:
    """The whole body of a request without streaming."""
    text = filler(0, generated)
    choice: dict[str, object] = {"index": 0, "finish_reason": finish_reason, "stop_reason": None, "logprobs": None}
    if completion.chat:
        choice["message"] = {"role": "assistant", "content": text, "tool_calls": []}
    else:
        choice["text"] = text
    kind = "chat.completion" if completion.chat else "text_completion"
    body = {
        **identity,
        "object": kind,
        "choices": [choice],
        "usage": usage(completion, generated),
        "kv_transfer_params": kv_transfer_params,
    }
    return json.dumps(body).encode()


class Chunks:
    """The server-sent events of one streaming answer; what is the same in all of them is rendered once."""

    DONE = b"data: [DONE]\n\n"

    def __init__(self, completion: Completion, identity: Mapping[str, object]) -> None:
        self._completion = completion
        kind = "chat.completion.chunk" if completion.chat else "text_completion"
        self._head = json.dumps({**identity, "object": kind})[:-1]
        self._rendered: dict[int, bytes] = {}

    def role(self) -> bytes:
        """What opens a chat: the role, before any text. Empty for a plain completion."""
        return self._event({"delta": {"role": "assistant", "content": ""}}, None) if self._completion.chat else b""

    def token(self, number: int, finish_reason: str | None) -> bytes:
        """Token `number` (from 0) of the answer."""
        if finish_reason is not None:
            return self._event(self._text(filler(number, 1)), finish_reason)
        word = number % len(_FILLER)
        if word not in self._rendered:
            self._rendered[word] = self._event(self._text(_FILLER[word]), None)
        return self._rendered[word]

    def end(self, finish_reason: str) -> bytes:
        """An end without a token, as when the request was aborted."""
        return self._event(self._text(""), finish_reason)

    def usage(self, generated: int) -> bytes:
        """The last chunk of a stream with `include_usage`: no choice, only the counts."""
        counts = json.dumps(usage(self._completion, generated))
        return f'data: {self._head}, "choices": [], "usage": {counts}}}\n\n'.encode()

    def _text(self, text: str) -> dict[str, object]:
        return {"delta": {"content": text}} if self._completion.chat else {"text": text}

    def _event(self, content: Mapping[str, object], finish_reason: str | None) -> bytes:
        choice = json.dumps({"index": 0, **content, "logprobs": None, "finish_reason": finish_reason})
        tail = ', "usage": null' if self._completion.include_usage else ""
        return f'data: {self._head}, "choices": [{choice}]{tail}}}\n\n'.encode()


def _asked_tokens(request: Mapping[str, Any], *, chat: bool) -> int | None:
    names = ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",)
    for name in names:
        asked = _typed(request, name, int, default=None)
        if asked is not None:
            if asked < 1:
                raise bad_request(f"{name} must be at least 1, got {asked}.", name)
            return asked
    return None


def _prompt_tokens(request: Mapping[str, Any]) -> int:
    prompt = request.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        tokens = count_tokens(prompt)
    elif isinstance(prompt, list) and all(isinstance(token, int) and token >= 0 for token in prompt):
        tokens = len(prompt)
    else:
        raise bad_request("prompt must be one text or one list of token ids", "prompt")
    if tokens == 0:
        raise bad_request("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    return tokens


def _chat_tokens(request: Mapping[str, Any]) -> int:
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a list of at least one message", "messages")
    tokens = 0
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise bad_request("each message is an object with a role", "messages")
        content = message.get("content") or ""
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if not all(isinstance(part, dict) and isinstance(part.get("text", ""), str) for part in parts):
            raise bad_request("content is a text or a list of parts", "messages")
        tokens += TOKENS_PER_MESSAGE + count_tokens("".join(part.get("text", "") for part in parts))
    return tokens


def _typed(request: Mapping[str, Any], name: str, kind: type | tuple[type, ...], *, default: Any) -> Any:  # noqa: ANN401 - JSON
    value = request.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise bad_request(f"{name} has a value of the wrong type: {value!r}", name)
    return value
