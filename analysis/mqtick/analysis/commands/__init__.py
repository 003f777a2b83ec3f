"""The commands of mqtick-report."""
