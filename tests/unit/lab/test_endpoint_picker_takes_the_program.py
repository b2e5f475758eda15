"""What the program writes for an endpoint picker starts this one: arguments and configuration, in each dialect."""

import pytest

from lab.stand_ins.endpoint_picker.config import load
from lab.stand_ins.endpoint_picker.dialect import DIALECTS
from lab.stand_ins.endpoint_picker.flags import parse
from llmd import epp_config
from llmd.dialects import router
from llmd.pool import Pool
from llmd.rates import RateMode, Rates
from llmd.router import picker_arguments

RATES = Rates(path=2696.125, prefill=15965, mode=RateMode.PINNED, source="test")


@pytest.mark.parametrize("version", sorted(DIALECTS))
def test_configurations_load_silently_and_carry_the_records_number(version):
    for render in (epp_config.prefill_decode, epp_config.co_located):
        config = load(epp_config.render(render(RATES, router(version))), DIALECTS[version])
        assert config.warnings == ()
        (affinity,) = {
            plugin.parameters["peakPrefillThroughput"]
            for profile in config.profiles.values()
            for plugin in profile.filters
            if plugin.type == "prefix-cache-affinity-filter"
        }
        assert str(affinity) == RATES.path_text
        assert config.inflight_producer is not None
        assert config.inflight_producer.name == router(version).inflight_producer


def test_arguments_parse():
    pool = Pool(name="qwen", namespace="llm", router_job="qwen-epp")
    flags = parse(picker_arguments(pool, config_path="/config/config.yaml", drain_seconds=65), {})
    assert (flags.pool_name, flags.pool_namespace, flags.config_file) == ("qwen", "llm", "/config/config.yaml")
    assert (flags.drain_timeout, flags.metrics_endpoint_auth, flags.secure_serving) == (65, True, True)
