# Work for the whole-process benchmark: `json` (with its compiled module) or `zlib`.
import sys

def numbers(seed):
    while True:
        seed = (seed * 1103515245 + 12345) % (1 << 31)
        yield seed

n = numbers(1)
if sys.argv[1] == "json":
    import json
    rows = [{"id": i, "name": f"row {next(n)}", "values": [next(n) / 7 for _ in range(8)]} for i in range(8000)]
    text = json.dumps(rows)
    for _ in range(4):
        rows = json.loads(text)
        text = json.dumps(rows, sort_keys=True)
    print(len(text), rows[77]["name"])
else:
    import zlib
    text = b" ".join(b"%d" % (next(n) % 5000) for _ in range(400000))
    packed = zlib.compress(text, 6)
    print(len(text), len(packed), zlib.crc32(zlib.decompress(packed)))
