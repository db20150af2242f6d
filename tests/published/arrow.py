# packages: pyarrow h5py duckdb numpy
"""Large C++ libraries: Arrow with its allocators and compute kernels, HDF5, a database with vectors and threads."""
import duckdb
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

table = pa.table({"k": [n % 19 for n in range(8000)], "v": [n * 3 % 97 / 7 for n in range(8000)], "s": [f"n{n % 31}" for n in range(8000)]})
print(table.group_by("k").aggregate([("v", "mean"), ("s", "count_distinct")]).sort_by("k").slice(0, 3).to_pydict())
for codec in ("snappy", "gzip", "zstd", "lz4", "brotli", "none"):
    pq.write_table(table, "t.parquet", compression=codec)
    print(codec, pq.read_table("t.parquet").equals(table))
print(pc.match_substring_regex(table["s"], "n1[0-3]").to_pylist().count(True), pc.sort_indices(table["v"])[99])
try:
    pa.array([1, "x"])
except pa.ArrowInvalid as error:
    print(error)
with h5py.File("f.h5", "w") as file:
    file.create_dataset("d", data=np.arange(60000).reshape(300, 200), compression="gzip", shuffle=True, chunks=(50, 50))
    file.attrs["a"] = "text"
with h5py.File("f.h5") as file:
    print(file["d"][7:300:60, 3], file.attrs["a"])
    try:
        file["missing"]
    except KeyError as error:
        print(error)
base = duckdb.connect()
print(base.execute("select sum(i), avg(i * 1.5), count(distinct i % 77) from range(200000) t(i)").fetchall())
print(base.execute("select k, round(avg(v), 9), count(*) from 't.parquet' group by k order by k limit 3").fetchall())
print(base.execute("with recursive f(n, a, b) as (select 1, 0::hugeint, 1::hugeint union all select n + 1, b, a + b from f where n < 90) select max(a) from f").fetchall())
try:
    base.execute("select missing")
except duckdb.BinderException as error:
    print(str(error).splitlines()[0])
