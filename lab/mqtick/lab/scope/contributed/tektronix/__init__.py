"""Tektronix: MSO, DPO, MDO and TBS, and a simulated instrument."""
