"""Stand-in for llm-d's endpoint picker: its protocol, flags, refusals, accounting and metrics, in code of our own.

Run it with `python -m lab.stand_ins.endpoint_picker`. `ext_proc` speaks with Envoy, `director` decides what happens to
a request; `scheduler`, `prompt`, `prefix_index` and `inflight` are the pure parts below it. `watch` feeds `datastore`
from the Kubernetes API, `pod_metrics` asks the engines, `metrics` and `metrics_server` answer Prometheus.

Left out, and refused where it is asked for: flow control, tokenizers, latency prediction, encode stages, selector and
file discovery, InferenceObjectives (every request has priority 0), several replicas (it is its own leader).
"""
