# packages: pandas numpy
"""Cython: grouping, joins, parsing, time series."""
import io
import numpy as np
import pandas as pd

rng = np.random.default_rng(5)
frame = pd.DataFrame({"k": rng.integers(0, 20, 5000), "v": rng.random(5000), "s": [f"n{n % 37}" for n in range(5000)]})
print(frame.groupby("k").v.agg(["mean", "std", "count", "median"]).head())
print(frame.merge(frame.groupby("s").v.sum().reset_index(), on="s").sort_values(["v_y", "v_x"]).iloc[[0, 99, -1]])
print(pd.read_csv(io.StringIO(frame.to_csv())).describe())
series = pd.Series(range(2000), index=pd.date_range("2026-01-01", periods=2000, freq="37min"))
print(series.resample("1D").sum().tail(3), series.rolling(7).mean().iloc[99], series.tz_localize("UTC").tz_convert("Europe/Berlin").index[700])
print(frame.pivot_table(index="k", columns="s", values="v").iloc[:2, :3], frame.s.str.replace("n", "m").value_counts().head(3))
print(frame.to_json()[:80], len(frame.to_json()), pd.read_json(io.StringIO(frame.head(20).to_json())).v.sum())
try:
    frame["missing"]
except KeyError as error:
    print(error)
