"""Stand-in for llm-d's routing sidecar (pd-sidecar): prefill elsewhere, decode here."""
