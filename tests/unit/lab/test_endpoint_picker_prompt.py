"""Prompts: what the endpoint picker reads from a body, and what it still counts as work."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.stand_ins.endpoint_picker.prefix_index import PrefixIndex
from lab.stand_ins.endpoint_picker.prompt import BadRequestError, Prompt, read, uncached_tokens


def body(**fields) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


@pytest.mark.parametrize(
    ("fields", "tokens", "exact"),
    [
        ({"prompt": list(range(2048))}, 2048, True),
        ({"prompt": [[1, 2], [3]]}, 3, True),
        ({"prompt": "x" * 8192}, 2048, False),
        ({"prompt": "xxxxx"}, 2, False),
        ({"prompt": "日本"}, 2, False),  # six bytes
        ({"prompt": ["xxxx", "yyyy"]}, 2, False),
        ({"messages": [{"role": "user", "content": "x" * 393}]}, 100, False),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 393}]}]}, 100, False),
        ({"input": "xxxx"}, 1, False),
    ],
)
def test_length_is_exact_for_ids_and_a_quarter_of_the_bytes_for_text(fields, tokens, exact):
    prompt = read(body(**fields))
    assert (prompt.tokens, prompt.exact, prompt.model) == (tokens, exact, "m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"prompt": "x"}', "names no model"),
        (b'{"model": "m"}', "neither prompt nor messages nor input"),
        (body(prompt=[]), "neither text nor token ids"),
        (body(prompt=[1, "a"]), "neither text nor token ids"),
        (body(prompt=[-1]), "neither text nor token ids"),
        (body(prompt=7), "neither text nor token ids"),
        (body(messages=[]), "messages is not a list with entries"),
        (body(messages=["hi"]), "a message is not an object"),
    ],
)
def test_a_body_without_a_readable_prompt_is_refused(text, message):
    with pytest.raises(BadRequestError, match=message):
        read(text)


def test_blocks_are_counted_up_to_the_bound_and_the_last_may_be_short():
    prompt = read(body(prompt=list(range(130))))
    assert len(prompt.block_hashes(64, 0)) == 3
    assert prompt.block_hashes(64, 2) == prompt.block_hashes(64, 0)[:2]


def test_a_block_covers_everything_before_it():
    one, other = ([7, *range(1, 128)], [8, *range(1, 128)])
    hashes = [read(body(prompt=ids)).block_hashes(64, 0) for ids in (one, other)]
    assert not set(hashes[0]) & set(hashes[1])


def test_models_do_not_share_blocks():
    blocks = [Prompt(model, b"x" * 256, exact=False).block_hashes(64, 0) for model in ("a", "b")]
    assert blocks[0] != blocks[1]


@pytest.mark.parametrize(
    ("tokens", "total", "matched", "uncached"),
    [
        (2048, 32, 0, 2048),
        (2048, 32, 30, 128),
        (2048, 32, 32, 0),
        (8, 1, 0, 64),  # small prompts round up to a block
        (200_000, 2048, 2048, 200_000 - 2048 * 64),  # beyond the bound nothing is matched
        (100, 0, 0, 100),  # no prefix matching at all
    ],
)
def test_uncached_tokens(tokens, total, matched, uncached):
    assert uncached_tokens(tokens, total, matched, 64) == uncached


def test_an_endpoint_holds_what_was_sent_to_it():
    index = PrefixIndex()
    index.record("a", (1, 2, 3), capacity=10)
    assert [index.match("a", blocks) for blocks in ((1, 2, 3), (1, 2, 9), (9, 2, 3))] == [3, 2, 0]
    assert index.match("b", (1, 2, 3)) == 0
    index.forget("a")
    assert index.match("a", (1,)) == 0


def test_old_prompts_are_pushed_out_tail_first():
    index = PrefixIndex()
    index.record("a", (1, 2, 3), capacity=4)
    index.record("a", (7, 8), capacity=4)
    assert index.match("a", (7, 8)) == 2
    assert index.match("a", (1, 2, 3)) == 2  # its last block is gone, its start still counts


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8, unique=True), max_size=20), st.integers(1, 20))
def test_an_index_never_exceeds_its_capacity_and_holds_the_newest_prompt(prompts, capacity):
    index = PrefixIndex()
    for blocks in prompts:
        index.record("a", blocks, capacity)
        assert sum(index.match("a", (block,)) for block in range(51)) <= capacity
        assert index.match("a", blocks) == min(len(blocks), capacity)
