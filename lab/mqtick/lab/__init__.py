"""mqtick: the lab room, oscilloscopes, a simulated bench, and experiments."""
