"""The bench's run folder: written, read, judged again."""
