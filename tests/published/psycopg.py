# packages: psycopg2-binary msgpack regex
"""Vendored libpq with its libraries; C and Cython."""
import msgpack
import psycopg2
import regex

print(psycopg2.__libpq_version__ > 100000, psycopg2.extensions.QuotedString("it's").getquoted(), psycopg2.extensions.adapt([1, 2.5, None, "x"]).getquoted())
try:
    psycopg2.connect("host=127.0.0.1 port=1 dbname=x connect_timeout=2")
except psycopg2.OperationalError as error:
    print(str(error).splitlines()[0])
data = {"a": [1, 2.5, b"x", None, True] * 500, "b": {str(n): n for n in range(500)}}
packed = msgpack.packb(data)
print(len(packed), msgpack.unpackb(packed) == data)
try:
    msgpack.unpackb(packed[:-1])
except ValueError as error:
    print(error)
print(regex.findall(r"(?<word>\p{Lu}\w+)(?=\s)", "Aa Bb cc \u00c4h d" * 5), regex.search(r"(?:dog){e<=1}", "dg").group(), regex.sub(r"(a(?:b|(?1))*c)", "<>", "xabcaabccz"))
