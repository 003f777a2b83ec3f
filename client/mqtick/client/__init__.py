"""mqtick: the client room."""
