"""Families that are not tested on real instruments; found through entry points, as any other."""
