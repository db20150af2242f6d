#!/usr/bin/env python3
"""Reads a trace of the tool memtrace: prints a line for each reference, or is imported for `references`.

The format is described in mem-trace/src/lib.rs.
"""

import sys
import zlib

ACCESS = {1: "R", 2: "W", 3: "RW"}


class Bytes:
    """Numbers from bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self):
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]


def inflate(data):
    return zlib.decompress(data, -15)


def describe(data):
    """A group: whether it is repeated, and for each reference instruction, distance, size, access."""
    repeated = data.take(1) == b"\1"
    return repeated, [(data.number(), data.number(), data.number(), data.take(1)[0]) for _ in range(data.number())]


def entries(payload, groups):
    """The references of a chunk."""
    thread, count, length = payload.number(), payload.number(), payload.number()
    streams = Bytes(inflate(payload.data[payload.at :]))
    control, addresses = Bytes(streams.take(length)), streams
    last, following, known = 0, {}, {}
    run = control.number()
    for _ in range(count):
        if run:
            run -= 1
            group = following.get(last, 0)
        else:
            group, run = control.number(), control.number()
        following[last] = group
        last = group
        address, distance = known.get(group, (0, 0))
        distance += addresses.signed()
        address = address + distance & (1 << 64) - 1
        known[group] = address, distance
        repeated, members = groups[group]
        if not repeated:
            for pc, offset, size, access in members:
                yield thread, pc, address + offset, size, access
            continue
        starts = address, address + addresses.signed()
        times = addresses.number()
        for i in range(times >> 1):
            for (pc, _, size, access), start in zip(members, starts):
                far = -size * i if times & 1 else size * i
                yield thread, pc, start + far & (1 << 64) - 1, size, access


def references(file):
    """For each reference: thread, instruction (as a text), address, size, access (1 read, 2 written, 3 both)."""
    if file.read(8) != b"ATOMMT\1\n":
        raise ValueError("not a trace of memtrace, or one of another version")
    objects, groups = [], {}
    while kind := file.read(1):
        length = shift = 0
        while True:
            byte = file.read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        payload = Bytes(file.read(length))
        if kind == b"\1":
            while payload.at < length:
                objects.append(payload.take(payload.number()).decode())
        elif kind == b"\2":
            data = Bytes(inflate(payload.data))
            while data.at < len(data.data):
                group, _ = data.number(), data.number()
                groups[group] = describe(data)
        elif kind == b"\3":
            for thread, pc, *rest in entries(payload, groups):
                number, pc = pc >> 32, pc & 0xFFFFFFFF
                yield thread, f"{objects[number]}+{pc:#x}" if number else f"{pc:#x}", *rest


def main():
    with open(sys.argv[1], "rb") as file:
        for thread, pc, address, size, access in references(file):
            print(thread, pc, ACCESS[access], f"{address:#x}", size)


if __name__ == "__main__":
    main()
