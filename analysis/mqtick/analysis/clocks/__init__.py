"""Clocks: time error, MTIE, TDEV and ADEV, holdover and convergence."""
