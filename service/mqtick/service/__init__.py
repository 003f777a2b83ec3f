"""mqtick: the service room."""
