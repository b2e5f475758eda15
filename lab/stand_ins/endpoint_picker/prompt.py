"""What a request's body says about the prompt: model, length in tokens, blocks for prefix matching.

A prompt of token ids is exact. For text there is no tokenizer: four bytes count as one token, as in the real picker's
estimate. Both are kept as bytes, four for each token, so that blocks are cut in one way.
"""

import hashlib
import json
from array import array
from dataclasses import dataclass

TOKEN_BYTES = 4
LEAST_BLOCK_TOKENS = 64  # the real picker never matches in smaller blocks, whatever the engine's are


class BadRequestError(ValueError):
    """A body from which no prompt can be read."""


@dataclass(frozen=True)
class Prompt:
    """One request's prompt.

    Attributes:
        model: Name that the client asked for.
        content: Four bytes for each token.
        exact: The client sent token ids.
    """

    model: str
    content: bytes
    exact: bool

    @property
    def tokens(self) -> int:
        """Length; an estimate for text."""
        return -(-len(self.content) // TOKEN_BYTES)

    def block_hashes(self, block_tokens: int, most_blocks: int) -> tuple[int, ...]:
        """One hash for each block, each covering everything before it; a last short block counts as one.

        Args:
            block_tokens: Size of a block.
            most_blocks: Blocks beyond it are left out; 0 = no bound.
        """
        size = block_tokens * TOKEN_BYTES
        blocks = -(-len(self.content) // size)
        if most_blocks:
            blocks = min(blocks, most_blocks)
        previous = hashlib.blake2b(
            b"ids" if self.exact else b"text", key=self.model.encode()[:64], digest_size=8
        ).digest()
        hashes = []
        for index in range(blocks):
            block = self.content[index * size : (index + 1) * size]
            previous = hashlib.blake2b(block, key=previous, digest_size=8).digest()
            hashes.append(int.from_bytes(previous))
        return tuple(hashes)


def uncached_tokens(tokens: int, total_blocks: int, matched_blocks: int, block_tokens: int) -> int:
    """Tokens that an endpoint must still compute: whole blocks that it lacks, and what lies beyond the last block."""
    missing = max(0, total_blocks - matched_blocks) * block_tokens
    return missing + max(0, tokens - total_blocks * block_tokens)


def read(body: bytes) -> Prompt:
    """The prompt of an OpenAI-style request body (`prompt`, `messages` or `input`).

    Raises:
        BadRequestError: Not a JSON object, no model, or no prompt that can be read.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequestError("the request body is not JSON") from None
    if not isinstance(document, dict):
        raise BadRequestError("the request body is not a JSON object")
    model = document.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequestError("the request body names no model")
    if "messages" in document:
        return Prompt(model, _messages(document["messages"]), exact=False)
    for key in ("prompt", "input"):
        if key in document:
            content, exact = _prompt(document[key], key)
            return Prompt(model, content, exact)
    raise BadRequestError("the request body has neither prompt nor messages nor input")


def _prompt(value: object, key: str) -> tuple[bytes, bool]:
    """Bytes of text or token ids, single or several; and whether they are ids."""
    if isinstance(value, str):
        return value.encode(), False
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return "".join(value).encode(), False
        if all(isinstance(item, list) for item in value):
            value = [token for item in value for token in item]
        try:
            return array("I", value).tobytes(), True
        except (TypeError, OverflowError):
            pass
    raise BadRequestError(f"{key} is neither text nor token ids")


def _messages(value: object) -> bytes:
    """Role and text of every chat message, one after the other."""
    if not isinstance(value, list) or not value:
        raise BadRequestError("messages is not a list with entries")
    parts: list[str] = []
    for message in value:
        if not isinstance(message, dict):
            raise BadRequestError("a message is not an object")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        parts.append(f"{message.get('role', '')}: {content or ''}\n")
    return "".join(parts).encode()
