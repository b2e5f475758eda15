"""Which prompt blocks each endpoint probably still holds in its KV cache.

Approximate, as in the real picker: what was sent there is taken to be there until newer blocks push it out.
"""

from collections import OrderedDict
from collections.abc import Sequence


class PrefixIndex:
    """For each endpoint, its most recently used block hashes."""

    def __init__(self) -> None:
        self._blocks: dict[str, OrderedDict[int, None]] = {}

    def match(self, endpoint: str, hashes: Sequence[int]) -> int:
        """How many leading blocks of the prompt `endpoint` holds."""
        held = self._blocks.get(endpoint)
        if not held:
            return 0
        for count, block in enumerate(hashes):
            if block not in held:
                return count
        return len(hashes)

    def record(self, endpoint: str, hashes: Sequence[int], capacity: int) -> None:
        """Note that a prompt went to `endpoint`, which holds `capacity` blocks.

        Later blocks are noted first, so that the oldest entry is a tail and never a prefix that others build on.
        """
        held = self._blocks.setdefault(endpoint, OrderedDict())
        for block in reversed(hashes):
            held[block] = None
            held.move_to_end(block)
        while len(held) > capacity:
            held.popitem(last=False)

    def forget(self, endpoint: str) -> None:
        """Drop an endpoint that left."""
        self._blocks.pop(endpoint, None)
