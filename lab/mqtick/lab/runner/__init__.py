"""mqtick: runs an experiment: brings subscribers up, records shots, saves them."""
