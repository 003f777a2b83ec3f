"""mqtick: the timeserver room."""
