"""Pure physics of an inference engine: time is an argument, nothing here reads a clock or does I/O."""
