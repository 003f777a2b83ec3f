"""From values to estimates with intervals, a line over N, and verdicts against limits."""
