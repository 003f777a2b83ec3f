"""The tables of a report as Parquet. Needs pyarrow."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

__all__ = ["parquet_of"]


def parquet_of(text: str) -> bytes:
    """Return a table that is CSV as Parquet: numbers and instants are such, empty cells null."""
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    table = pyarrow.csv.read_csv(io.BytesIO(text.encode()), convert_options=options)
    # Not every reader knows a column of a type that has no values.
    known = [
        field.with_type(pa.float64()) if pa.types.is_null(field.type) else field
        for field in table.schema
    ]
    buffer = io.BytesIO()
    pq.write_table(table.cast(pa.schema(known)), buffer)
    return buffer.getvalue()
