"""mqtick: oscilloscopes: the dialects of the families, and simulated instruments."""
