"""mqtick: the pins room."""
