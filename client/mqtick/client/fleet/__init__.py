"""A fleet that is watched over its broker: what each client publishes, and who reads it."""
