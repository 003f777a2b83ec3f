"""mqtick: brokers: what is wrong with one, and one experiment over several."""
