"""mqtick: what `mqtick-client doctor` looks at."""
