# packages: shapely faiss-cpu pyzmq numpy
"""GEOS, nearest neighbours with OpenMP and a vendored BLAS, sockets with threads of their own."""
import threading
import faiss
import numpy as np
import shapely
import zmq

a = shapely.Point(0, 0).buffer(2)
b = shapely.box(0, 0, 3, 3)
print(a.intersection(b).area, a.union(b).wkt[:60], shapely.is_valid_reason(shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])))
points = shapely.points(np.random.default_rng(2).random((2000, 2)))
print(shapely.STRtree(points).query(shapely.box(0.2, 0.2, 0.3, 0.3)).size, shapely.convex_hull(shapely.multipoints(points)).length)
try:
    shapely.from_wkt("POINT (1")
except shapely.errors.GEOSException as error:
    print(error)
vectors = np.random.default_rng(3).random((3000, 24), dtype="float32")
for index in (faiss.IndexFlatL2(24), faiss.IndexHNSWFlat(24, 8), faiss.index_factory(24, "IVF20,Flat")):
    index.train(vectors)
    index.add(vectors)
    print(index.ntotal, index.search(vectors[:3], 1)[1].ravel() if index.is_trained and isinstance(index, faiss.IndexFlat) else index.d)
context = zmq.Context()
server = context.socket(zmq.REP)
port = server.bind_to_random_port("tcp://127.0.0.1")
def serve():
    for _ in range(50):
        server.send(server.recv()[::-1])
thread = threading.Thread(target=serve)
thread.start()
client = context.socket(zmq.REQ)
client.connect(f"tcp://127.0.0.1:{port}")
total = 0
for n in range(50):
    client.send(b"%d" % (n + 10))
    total += int(client.recv())
thread.join()
print(total)
client.close()
server.close()
context.term()
