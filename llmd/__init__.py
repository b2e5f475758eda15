"""What llm-d on Kubernetes is called, asked and computed: values in, values out (no Pulumi, no I/O, no clock)."""
