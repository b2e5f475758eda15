"""The Pulumi program: read the environment's configuration, build it, say what there is."""

import gc

import pulumi

from stacks.config import load
from stacks.environment import build

# The SDK's bookkeeping is many small objects that all live to the end, and searching them over and over was a third of
# the time of 50 models (7.8 s with the default thresholds, 5.2 s with these, for 6 MB more).
gc.set_threshold(50_000, 20, 100)

outputs = build(load())
pulumi.export("environment", outputs.apply(lambda environment: environment.to_dict()))
pulumi.export("endpoints", outputs.apply(lambda environment: {one.key: one.endpoint for one in environment.models}))
