"""Files saved by hand: put together, named, and turned into a measurement."""
