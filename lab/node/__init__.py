"""The node: which programs it consists of, who starts and watches them, and what they are configured with."""
