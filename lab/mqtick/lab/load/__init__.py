"""mqtick: load: many subscribers of the time topic from one process."""
