"""How counters are read from a metrics page."""

import http.client

import pytest

from ops.router import Answer, counter

PAGE = """\
# HELP llm_d_epp_disagg_decision_total Decisions.
# TYPE llm_d_epp_disagg_decision_total counter
llm_d_epp_disagg_decision_total{decision_type="prefill-decode",model_name="a"} 7
llm_d_epp_disagg_decision_total{decision_type="prefill-decode",model_name="b"} 2
llm_d_epp_disagg_decision_total{decision_type="decode-only",model_name="a"} 40
"""


def test_a_counter_is_summed_over_the_series_that_carry_the_labels():
    page = Answer(200, PAGE)
    assert counter(page, "llm_d_epp_disagg_decision_total", decision_type="prefill-decode") == 9
    assert counter(page, "llm_d_epp_disagg_decision_total") == 49


def test_a_counter_without_series_is_zero():
    assert counter(Answer(200, PAGE), "vllm:request_success_total") == 0


def test_refused_metrics_are_an_error_and_never_zero():
    with pytest.raises(http.client.HTTPException, match="/metrics: HTTP 401: Unauthorized"):
        counter(Answer(401, "Unauthorized"), "vllm:request_success_total")
