"""mqtick: configuration files: keys with defaults and units, read, checked and printed."""
