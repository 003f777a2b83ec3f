"""mqtick: the protocol room."""
