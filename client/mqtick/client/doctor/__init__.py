"""mqtick: the checks of `mqtick-client doctor`."""
