#!/usr/bin/env python3
"""Chooses intervals that stand for a whole run, from the vectors of the tool bbv.

The method is SimPoint's: each vector is divided by its sum, projected to a few random dimensions, and the
projections are clustered by k-means. Of the numbers of clusters up to a limit, the smallest one is taken whose score
(the Bayesian information criterion) is near the best. The interval nearest to the centre of a cluster stands for the
cluster; its weight is the cluster's share of the instructions.
"""

import argparse
import math
import random

DIMENSIONS = 15  # of a projection
STARTS = 5  # of k-means for each number of clusters
ROUNDS = 100  # of k-means at most


def read(name):
    """The vectors of a file: for each interval the instructions by block."""
    with open(name) as lines:
        return [dict(tuple(map(int, pair.split(":")[1:])) for pair in line[1:].split()) for line in lines]


def project(vectors, seed):
    """Each vector, divided by its sum, as a point of few dimensions."""
    rng = random.Random(seed)
    rows = {}
    points = []
    for vector in vectors:
        total = sum(vector.values())
        point = [0.0] * DIMENSIONS
        for block, count in vector.items():
            if block not in rows:
                rows[block] = [rng.uniform(-1, 1) for _ in range(DIMENSIONS)]
            point = [p + count / total * r for p, r in zip(point, rows[block])]
        points.append(point)
    return points


def distance(a, b):
    """Square of the distance between two points."""
    return sum((x - y) ** 2 for x, y in zip(a, b))


def k_means(points, k, rng):
    """Centres and the cluster of each point; centres start far from each other (k-means++)."""
    centres = [rng.choice(points)]
    while len(centres) < k:
        weights = [min(distance(p, c) for c in centres) for p in points]
        centres.append(rng.choices(points, weights)[0] if any(weights) else rng.choice(points))
    clusters = None
    for _ in range(ROUNDS):
        nearest = [min(range(k), key=lambda c: distance(p, centres[c])) for p in points]
        if nearest == clusters:
            break
        clusters = nearest
        for c in range(k):
            members = [p for p, cluster in zip(points, clusters) if cluster == c]
            if members:
                centres[c] = [sum(column) / len(members) for column in zip(*members)]
    return centres, clusters


def score(points, centres, clusters):
    """The Bayesian information criterion: larger is better."""
    n, k = len(points), len(centres)
    error = sum(distance(p, centres[c]) for p, c in zip(points, clusters))
    variance = max(error / max(n - k, 1) / DIMENSIONS, 1e-12)
    sizes = [clusters.count(c) for c in range(k)]
    likelihood = sum(size * math.log(size / n) for size in sizes if size)
    likelihood -= n * DIMENSIONS / 2 * math.log(2 * math.pi * variance) + DIMENSIONS * (n - k) / 2
    return likelihood - (k - 1 + DIMENSIONS * k + 1) / 2 * math.log(n)


def main():
    parser = argparse.ArgumentParser(description="Chooses intervals that stand for a whole run.")
    parser.add_argument("vectors", help="file of vectors that bbv has written")
    parser.add_argument("--most", type=int, default=10, help="largest number of clusters (10)")
    parser.add_argument("--seed", type=int, default=1, help="start of the random numbers (1)")
    arguments = parser.parse_args()

    vectors = read(arguments.vectors)
    points = project(vectors, arguments.seed)
    rng = random.Random(arguments.seed)
    found = []
    for k in range(1, min(arguments.most, len(points)) + 1):
        tries = [k_means(points, k, rng) for _ in range(STARTS)]
        found.append(max((score(points, *one), one) for one in tries))
    worst, best = min(s for s, _ in found), max(s for s, _ in found)
    enough = worst + 0.9 * (best - worst)
    centres, clusters = next(one for s, one in found if s >= enough)

    sizes = [sum(vector.values()) for vector in vectors]
    print("interval  weight  cluster of")
    for c, centre in enumerate(centres):
        members = [i for i, cluster in enumerate(clusters) if cluster == c]
        if members:
            chosen = min(members, key=lambda i: distance(points[i], centre))
            weight = sum(sizes[i] for i in members) / sum(sizes)
            print(f"{chosen + 1:8}  {weight:6.3f}  {len(members)} intervals")
    print("phases: " + "".join(chr(ord("A") + c) for c in clusters))


if __name__ == "__main__":
    main()
