"""What an instrument saw, and the edges in it."""
