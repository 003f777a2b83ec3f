"""mqtick: brokers: find faults of one, and repeat one experiment over several."""
