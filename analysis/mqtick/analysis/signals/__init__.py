"""What an instrument recorded, and the edges in it."""
