"""Are GPUs summed, placed and refused with the arithmetic that a reviewer needs?"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmd.gpus import Accelerator, Demand, UnknownAcceleratorError, quota, tally

H100 = Accelerator(name="h100", per_node=8, nodes=4, budget=20, headroom=4)
PREFILL = Demand(model="qwen3-32b", role="prefill", accelerator="h100", gpus_per_replica=2, minimum=1, maximum=4)
DECODE = replace(PREFILL, role="decode")


def problems(*demands, accelerator=H100):
    [one] = tally([accelerator], demands)
    return list(one.problems)


def test_the_sums_of_an_environment_that_just_fits():
    [one] = tally([H100], [PREFILL, DECODE])
    assert (one.at_min, one.at_max, one.needed, one.capacity) == (4, 16, 20, 32)
    assert one.problems == ()


def test_one_gpu_above_the_budget_is_refused_with_its_terms():
    [problem] = problems(PREFILL, DECODE, accelerator=replace(H100, headroom=5))
    assert problem == (
        "h100: qwen3-32b prefill 4 x 2 + qwen3-32b decode 4 x 2 = 16 GPUs at maximum, with headroom 5 that is 21, "
        "1 above the budget of 20"
    )


def test_a_budget_above_the_nodes_is_refused():
    assert problems(accelerator=replace(H100, nodes=2)) == [
        "h100: the budget of 20 GPUs is above the 2 nodes x 8 = 16 GPUs"
    ]


def test_a_replica_larger_than_a_node_is_refused():
    [problem] = problems(replace(PREFILL, gpus_per_replica=16, maximum=1))
    assert problem == "h100: a replica of qwen3-32b prefill needs 16 GPUs on one node, which has 8"


def test_gpus_that_fit_in_sum_but_not_on_nodes_are_refused():
    node = Accelerator(name="a", per_node=4, nodes=2, budget=8)
    three = Demand(model="m", role="decode", accelerator="a", gpus_per_replica=3, minimum=1, maximum=2)
    one = replace(three, role="prefill", gpus_per_replica=2, maximum=1)
    assert problems(three, one, accelerator=node) == [
        "a: of 8 GPUs at maximum 2 find no place on 2 nodes x 4 = 8 GPUs, since a replica's GPUs must be on one node"
    ]


def test_an_unlisted_accelerator_is_refused_with_the_listed():
    with pytest.raises(UnknownAcceleratorError, match=r"qwen3-32b prefill: accelerator 'h200' is unknown; known: h100"):
        tally([H100], [replace(PREFILL, accelerator="h200")])


def test_each_accelerator_is_tallied_apart():
    l4 = Accelerator(name="l4", per_node=1, nodes=3, budget=3)
    fixed = Demand(model="tiny", role="server", accelerator="l4", gpus_per_replica=1, minimum=3, maximum=3)
    tallies = tally([H100, l4], [PREFILL, DECODE, fixed])
    assert [(one.accelerator.name, one.at_min, one.at_max, one.capacity) for one in tallies] == [
        ("h100", 4, 16, 32),
        ("l4", 3, 3, 3),
    ]


def test_a_namespaces_quota_is_its_maximum_and_the_headroom():
    assert quota([PREFILL, DECODE], headroom=4) == 20


DEMANDS = st.lists(
    st.builds(
        lambda gpus, low, more: replace(PREFILL, gpus_per_replica=gpus, minimum=low, maximum=low + more),
        st.integers(1, 8),
        st.integers(1, 3),
        st.integers(0, 5),
    ),
    max_size=4,
)


@given(DEMANDS, st.integers(1, 8), st.integers(1, 8))
def test_no_more_is_placed_than_is_asked_or_there(demands, per_node, nodes):
    [one] = tally([replace(H100, per_node=per_node, nodes=nodes)], demands)
    assert one.at_min <= one.at_max
    assert one.placeable <= min(one.at_max, one.capacity)
    if all(demand.gpus_per_replica == 1 for demand in demands):
        assert one.placeable == min(one.at_max, one.capacity)


def one_by_one(accelerator: Accelerator, demands: list[Demand]) -> int:
    """GPUs that find a place when each replica in turn, the biggest first, takes the tightest node that still fits."""
    free, placed = [accelerator.per_node] * accelerator.nodes, 0
    for size in sorted((d.gpus_per_replica for d in demands for _ in range(d.maximum)), reverse=True):
        fitting = [node for node, gpus in enumerate(free) if gpus >= size]
        if fitting:
            free[min(fitting, key=lambda node: free[node])] -= size
            placed += size
    return placed


@given(
    st.tuples(st.integers(1, 16), st.integers(1, 6)),
    st.lists(st.tuples(st.integers(1, 17), st.integers(1, 9)), max_size=5),
)
def test_placing_whole_fleets_gives_what_placing_replica_by_replica_gives(nodes, sizes):
    accelerator = Accelerator(name="h100", per_node=nodes[0], nodes=nodes[1], budget=1)
    demands = [replace(PREFILL, gpus_per_replica=size, maximum=maximum) for size, maximum in sizes]
    [one] = tally([accelerator], demands)
    assert one.placeable == one_by_one(accelerator, demands)


def test_a_cluster_of_any_size_is_judged_by_arithmetic_alone():
    huge = Accelerator(name="h100", per_node=8, nodes=2**31 - 1, budget=2**31 - 1)
    [one] = tally([huge], [replace(PREFILL, gpus_per_replica=3, maximum=2**31 - 1)])
    assert one.placeable == 3 * (2**31 - 1)
