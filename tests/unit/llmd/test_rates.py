"""Is a rate one number with one text, wherever it is read?"""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmd import dialects, epp_config, rates, triggers
from llmd.names import Names
from llmd.pool import Fleet
from llmd.rates import RateError, RateMode, Rates
from llmd.roles import Role
from llmd.scaling import Threshold

NUMBERS = st.floats(min_value=0.001, max_value=1e9, allow_nan=False)


def record(path: float = 2696, prefill: float | None = 15965, *, mode=RateMode.PINNED, source="a run", key=""):
    return Rates(path=path, prefill=prefill, mode=mode, source=source, key=key)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (2696, "2696"),
        (2696.0, "2696"),
        (2696.5, "2696.5"),
        (2696.12345, "2696.123"),
        (0.001, "0.001"),
        (1e9, "1000000000"),
    ],
)
def test_the_text_of_a_rate(number, written):
    assert rates.text(number) == written


@given(NUMBERS)
def test_the_text_names_exactly_the_number_that_is_kept(number):
    kept = record(path=number, prefill=None)
    assert float(kept.path_text) == kept.path
    assert re.fullmatch(r"[0-9]+(\.[0-9]{1,3})?", kept.path_text)
    assert not kept.path_text.endswith((".0", ".00", ".000"))
    assert math.isclose(kept.path, number, abs_tol=0.00051)


@given(NUMBERS)
def test_every_reader_carries_the_records_text(number):
    kept = record(path=number, prefill=number * 4 + 1)
    router, engine = dialects.router("0.11"), dialects.engine("vllm", "0.27")
    names, limit = Names("m", "ns"), Threshold(value=1.5)
    prefill, both = Fleet.of(names, Role.PREFILL), Fleet.of(names, Role.BOTH)
    for config in (epp_config.prefill_decode(kept, router), epp_config.co_located(kept, router)):
        written = re.findall(r'"peakPrefillThroughput": ([^\s,}]+)', epp_config.render(config))
        assert written == [kept.path_text]
    asked = {
        triggers.prefill_by_path(both, kept, limit, router).query: kept.path_text,
        triggers.prefill_by_phase(prefill, kept, limit, router, engine).query: kept.prefill_text,
        triggers.transfer_by_phase(prefill, kept, limit, router, engine).query: kept.transfer_text,
    }
    for query, text in asked.items():
        assert re.findall(r"\) / ([0-9.]+)[) ]", query) == [text]


def test_the_transfer_of_the_published_run_is_3244_tokens_per_second():
    assert round(record().transfer) == 3244
    assert record().transfer_text == "3243.774"


@given(st.floats(min_value=1, max_value=1e6), st.floats(min_value=1.001, max_value=100))
def test_prefill_and_transfer_in_series_give_the_path(path, faster):
    kept = record(path=path, prefill=path * faster + 0.01)
    floors = 1 / kept.prefill + 1 / kept.transfer
    # each rate is rounded to 0.001, which weighs most on the smallest
    assert math.isclose(1 / kept.path, floors, rel_tol=0.002 / min(kept.path, kept.transfer) + 1e-9)


@given(NUMBERS)
def test_a_co_located_record_has_one_text(number):
    kept = record(path=number, prefill=None)
    assert kept.prefill_text == kept.path_text
    assert kept.transfer is None
    with pytest.raises(RateError, match="no transfer rate"):
        _ = kept.transfer_text


@pytest.mark.parametrize("number", [0, -1, 0.0001, math.nan, math.inf, 1e13])
def test_an_impossible_throughput_is_refused(number):
    with pytest.raises(RateError, match="throughput"):
        record(path=number, prefill=None)


def test_two_rates_that_leave_no_time_for_a_transfer_are_refused():
    with pytest.raises(RateError, match="leave no measurable KV transfer between them"):
        record(path=1e9, prefill=1e9 + 0.001)


@pytest.mark.parametrize("prefill", [2696, 2000, 2696.0004])
def test_a_path_as_fast_as_its_prefill_is_refused(prefill):
    with pytest.raises(RateError, match=r"2696 tokens/s\) must be below prefill's"):
        record(prefill=prefill)


@given(
    NUMBERS, st.none() | st.floats(min_value=1.01, max_value=50), st.sampled_from(list(RateMode)), st.text(), st.text()
)
def test_a_record_survives_json(path, faster, mode, source, key):
    prefill = None if faster is None else path * faster + 0.01
    kept = record(path=path, prefill=prefill, mode=mode, source=source, key=key)
    assert Rates.from_dict(json.loads(json.dumps(kept.to_dict()))) == kept


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": None}, "cannot be read"),
        ({"mode": "guess"}, "cannot be read"),
        ({"transfer": "1"}, "transfer 1 does not follow from path 2696 and prefill 15965"),
        ({"prefill": None}, "does not follow"),
        ({"path": "-1"}, "positive number"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change, said):
    with pytest.raises(RateError, match=said):
        Rates.from_dict({**record().to_dict(), **change})


@pytest.mark.parametrize("field", ["path", "mode", "source", "key"])
def test_a_record_without_a_field_is_refused(field):
    data = record().to_dict()
    del data[field]
    with pytest.raises(RateError, match=f"needs '{field}'"):
        Rates.from_dict(data)
