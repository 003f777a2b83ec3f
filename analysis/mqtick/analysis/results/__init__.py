"""From a measurement to its numbers."""
