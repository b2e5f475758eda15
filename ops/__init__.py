"""Day-2 commands: they read the outputs of a stack and live objects, and keep no copy of their own."""
