"""Families that nobody of us could try: found as any other package's, through entry points."""
