"""mqtick: the recording room: from a waveform to edges, a shot, a run folder. Needs numpy only."""
