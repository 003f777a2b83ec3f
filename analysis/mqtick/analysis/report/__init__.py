"""From a result to what people read: figures, page, PDF, tables."""
