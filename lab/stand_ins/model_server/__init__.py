"""Stand-in for vLLM: its command line, API and metrics over the physics of `simulation/`, without a GPU.

What it costs, measured on two cores (November 2026, 20 to 200 streams, client not counted): 26 to 39 µs of
CPU per streamed token, about 80 µs with the routing sidecar in front, and 0.3 ms per read of /metrics. So two cores
carry some 5,000 tokens/s in all if Envoy, the picker and the client are to run beside it; above that tokens come late
in bunches, but no deadline moves.
"""
