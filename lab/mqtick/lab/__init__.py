"""mqtick: the lab: oscilloscopes, a simulated bench, and experiments."""
