"""The bench's run folder: written, read, judged anew."""
