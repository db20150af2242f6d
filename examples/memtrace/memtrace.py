#!/usr/bin/env python3
"""Reads a trace of the tool memtrace: prints a line for each reference, or is imported for `references`.

The format is described in reports/mem-trace/src/lib.rs.
"""

import sys
import zlib

ACCESS = {1: "R", 2: "W", 3: "RW", 4: "X"}
EXECUTED = 4
# Number of bytes of a word's distance, by its two bits.
LENGTHS = 0, 1, 3, 8
MASK = (1 << 64) - 1
# The bits of a word that begins an entry: all others are set.
MAX_STATE = (1 << 31) - 1


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
    """A batch: whether it is repeated, number of values, items (instruction, access, size, value, distance)."""
    repeated, values = data.take(1) == b"\1", data.take(1)[0]
    items, pc = [], 0
    for _ in range(data.number()):
        access, size = data.take(1)[0], data.number()
        pc += data.signed()
        executed = access == EXECUTED
        items.append((pc, access, size, None if executed else data.take(1)[0], 0 if executed else data.signed()))
    return repeated, values, items


class Thread:
    """What the next words of a thread are predicted from: words by batch and place, and the place of the next one."""

    def __init__(self):
        self.words, self.at = {}, (0, 0)


def entries(payload, compressed, batches, threads):
    """The references of a chunk."""
    number, count = payload.number(), payload.number()
    data = Bytes(inflate(payload.data[payload.at :])) if compressed else payload
    thread = threads.setdefault(number, Thread())
    values = None
    for i in range(count):
        if i % 4 == 0:
            bits = data.take(1)[0]
        distance = int.from_bytes(data.take(LENGTHS[bits & 3]), "little", signed=True)
        bits >>= 2
        word = thread.words[thread.at] = thread.words.get(thread.at, 0) + distance & MASK
        if values is None:
            # The word begins an entry.
            batch, values = (word & MAX_STATE) >> 3, []
            if word | MAX_STATE != MASK or batch not in batches or batches[batch][1] != word & 7:
                thread.at, values = (0, 0), None
                continue
            repeated, length, items = batches[batch]
        else:
            values.append(word)
        thread.at = batch, len(values)
        if len(values) < length:
            continue
        for time in range(values[2] >> 1 if repeated else 1):
            for pc, access, size, value, offset in items:
                if access == EXECUTED:
                    yield number, pc, pc, size, access
                    continue
                far = size * time if repeated else 0
                if repeated and values[2] & 1:
                    far = -far
                yield number, pc, values[value] + offset + far & MASK, size, access
        values = None
    if values is not None:
        thread.at = 0, 0


def references(file):
    """For each reference: thread, instruction (as a text), address, size, access (1 read, 2 written, 3 both).

    An executed instruction has access 4, and its own address and size.
    """
    if file.read(8) != b"ATOMMT\3\n":
        raise ValueError("not a trace of memtrace, or one of another version")
    objects, batches, threads = [], {}, {}
    while kind := file.read(1):
        length = shift = 0
        while True:
            byte = file.read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        payload = Bytes(file.read(length))
        if len(payload.data) < length:
            raise ValueError("the trace is damaged: it ends within a chunk")
        if kind == b"\1":
            while payload.at < length:
                name, path, build_id = (payload.take(payload.number()) for _ in range(3))
                objects.append(name.decode())
        elif kind == b"\2":
            data = Bytes(inflate(payload.data))
            while data.at < len(data.data):
                batch, _ = data.number(), data.number()
                batches[batch] = describe(data)
        elif kind in b"\3\4":
            for thread, pc, *rest in entries(payload, kind == b"\4", batches, threads):
                number, pc = pc >> 32, pc & 0xFFFFFFFF
                yield thread, f"{objects[number]}+{pc:#x}" if number else f"{pc:#x}", *rest


def main():
    with open(sys.argv[1], "rb") as file:
        for thread, pc, address, size, access in references(file):
            print(thread, pc, ACCESS[access], f"{address:#x}", size)


if __name__ == "__main__":
    main()
