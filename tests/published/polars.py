# packages: polars
"""A large library in Rust with its own allocator and thread pool."""
import io
import polars as pl

frame = pl.DataFrame({"k": [n % 23 for n in range(9000)], "v": [n * 7 % 101 / 3 for n in range(9000)], "s": [f"n{n % 41}" for n in range(9000)]})
print(frame.lazy().filter(pl.col("v") > 5).group_by("k").agg(pl.col("v").mean().alias("m"), pl.len()).sort("k").collect().head(4))
print(frame.join(frame.group_by("s").agg(pl.col("v").sum().alias("t")), on="s").sort(["t", "v", "k"]).row(77))
print(pl.read_csv(io.BytesIO(frame.write_csv().encode())).describe())
print(frame.select(pl.col("s").str.replace_all(r"n(\d)", "m$1").value_counts(sort=True).struct.field("count").sum()))
print(frame.sql("select k, count(*) as c from self where s like 'n1%' group by k order by k limit 3"))
file = io.BytesIO()
frame.write_parquet(file)
file.seek(0)
print(pl.read_parquet(file).equals(frame))
try:
    frame.select("missing")
except pl.exceptions.ColumnNotFoundError as error:
    print(type(error).__name__)
