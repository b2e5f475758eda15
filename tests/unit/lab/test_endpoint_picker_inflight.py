"""In-flight accounting of the endpoint picker."""

from hypothesis import given
from hypothesis import strategies as st

from lab.stand_ins.endpoint_picker.inflight import Accounting, Charge, Load


def books(*, prunes: bool = True) -> Accounting:
    return Accounting(prunes_departed_series=prunes)


def start(accounting: Accounting, tokens: int = 2048, fairness_id: str = "default-flow"):
    charges = [Charge("decode", "d-rank-0", "ns", tokens), Charge("prefill", "p-rank-0", "ns", tokens)]
    return accounting.start(charges, fairness_id=fairness_id, priority=0)


def shown(accounting: Accounting) -> dict[str, tuple[int, int]]:
    """Requests and tokens of the exported series, summed by endpoint."""
    sums: dict[str, tuple[int, int]] = {}
    for labels, load in accounting.series():
        requests, tokens = sums.get(labels.endpoint_name, (0, 0))
        sums[labels.endpoint_name] = (requests + load.requests, tokens + load.tokens)
    return sums


def test_a_request_is_charged_to_the_endpoint_of_every_profile():
    accounting = books()
    start(accounting)
    assert shown(accounting) == {"d-rank-0": (1, 2048), "p-rank-0": (1, 2048)}
    assert accounting.load("p-rank-0") == Load(1, 2048)


def test_there_is_no_series_before_the_first_request():
    assert shown(books()) == {}
    assert books().load("p-rank-0") == Load(0, 0)


def test_the_first_streamed_chunk_releases_all_tokens_and_the_prefill_request():
    accounting = books()
    ticket = start(accounting)
    accounting.first_chunk(ticket)
    assert shown(accounting) == {"d-rank-0": (1, 0), "p-rank-0": (0, 0)}
    accounting.first_chunk(ticket)
    accounting.end(ticket)
    assert shown(accounting) == {"d-rank-0": (0, 0), "p-rank-0": (0, 0)}


def test_without_a_streamed_chunk_everything_stays_until_the_end():
    accounting = books()
    ticket = start(accounting)
    assert shown(accounting)["p-rank-0"] == (1, 2048)
    accounting.end(ticket)
    accounting.end(ticket)
    assert shown(accounting) == {"d-rank-0": (0, 0), "p-rank-0": (0, 0)}


def test_flows_have_series_of_their_own():
    accounting = books()
    start(accounting, 10, "a")
    start(accounting, 20, "b")
    tokens = {(labels.endpoint_name, labels.fairness_id): load.tokens for labels, load in accounting.series()}
    assert tokens[("p-rank-0", "a")] == 10
    assert tokens[("p-rank-0", "b")] == 20


def test_the_older_router_keeps_a_departed_series_and_drains_it():
    accounting = books(prunes=False)
    ticket = start(accounting)
    accounting.forget("p-rank-0")
    assert shown(accounting)["p-rank-0"] == (1, 2048)
    assert accounting.load("p-rank-0") == Load(0, 0)
    accounting.end(ticket)
    assert shown(accounting) == {"d-rank-0": (0, 0), "p-rank-0": (0, 0)}


def test_the_newer_router_deletes_a_departed_series_for_good():
    accounting = books()
    ticket = start(accounting)
    accounting.forget("p-rank-0")
    accounting.end(ticket)
    assert shown(accounting) == {"d-rank-0": (0, 0)}


def test_a_late_release_does_not_touch_an_endpoint_that_came_back():
    accounting = books()
    old = start(accounting, 100)
    accounting.forget("p-rank-0")
    start(accounting, 7)
    accounting.end(old)
    assert shown(accounting)["p-rank-0"] == (1, 7)
    assert accounting.load("p-rank-0") == Load(1, 7)


@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["start", "chunk", "end", "forget"]), st.integers(0, 5)), max_size=60),
)
def test_nothing_ever_goes_below_zero_and_all_ends_at_zero(prunes, steps):
    accounting = books(prunes=prunes)
    tickets = []
    for step, number in steps:
        if step == "start":
            tickets.append(start(accounting, number))
        elif step == "forget":
            accounting.forget("p-rank-0")
        elif tickets:
            ticket = tickets[number % len(tickets)]
            accounting.first_chunk(ticket) if step == "chunk" else accounting.end(ticket)
        assert all(load.requests >= 0 <= load.tokens for _, load in accounting.series())
    for ticket in tickets:
        accounting.end(ticket)
    assert set(shown(accounting).values()) <= {(0, 0)}
