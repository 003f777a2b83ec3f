"""Siglent: the :WAVeform command set and the older WF? one, and simulated instruments."""
