#!/usr/bin/env python3
"""Reads an event file of TensorBoard from its formats alone, and compares it with the values that went in.

The formats: records as of TensorFlow's record_writer.h; protobuf's encoding; the fields of tensorflow's event.proto and
summary.proto. `event_file.py FILE TRUTH`, where each line of TRUTH is "histogram" or "scalar", tag, step, time and values,
separated by tabs. As a module: `events(FILE)`.
"""

import math
import struct
import sys

TABLE = []
for byte in range(256):
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    TABLE.append(crc)


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The payloads: u64 length, masked CRC-32C of it, payload, masked CRC-32C of that."""
    at = 0
    while at < len(data):
        length, of_length = struct.unpack_from("<QI", data, at)
        assert masked_crc32c(data[at : at + 8]) == of_length, f"checksum of a length at {at}"
        payload = data[at + 12 : at + 12 + length]
        (of_payload,) = struct.unpack_from("<I", data, at + 12 + length)
        assert masked_crc32c(payload) == of_payload, f"checksum of a record at {at}"
        yield payload
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, wire type, value) of each field of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            length, at = varint(data, at)
            assert at + length <= len(data), "a field that ends behind its message"
            value, at = data[at : at + length], at + length
        else:
            kind, size = {1: ("<d", 8), 5: ("<f", 4)}[wire]
            (value,), at = struct.unpack_from(kind, data, at), at + size
        yield key >> 3, wire, value


def message(data, known):
    """The fields of a message by name. `known`: number → (name, wire type, reader); each comes once."""
    result = {}
    for number, wire, value in fields(data):
        name, of, read = known[number]
        assert wire == of, (name, wire)
        assert name not in result, f"{name} twice"
        result[name] = read(value)
    return result


def same(value):
    return value


def text(data):
    return data.decode("utf-8")  # throws if it is none, as protobuf does


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def histogram(data):
    names = ["min", "max", "num", "sum", "sum_squares"]
    known = {number: (name, 1, same) for number, name in enumerate(names, 1)}
    return message(data, {**known, 6: ("bucket_limit", 2, doubles), 7: ("bucket", 2, doubles)})


def plugin_data(data):
    return message(data, {1: ("plugin_name", 2, text), 2: ("content", 2, same)})


def metadata(data):
    return message(data, {1: ("plugin_data", 2, plugin_data)})


def value(data):
    return message(
        data,
        {
            1: ("tag", 2, text),
            2: ("simple_value", 5, same),
            5: ("histo", 2, histogram),
            9: ("metadata", 2, metadata),
        },
    )


def summary(data):
    return [value(inner) for number, wire, inner in fields(data) if (number, wire) == (1, 2)]


def events(file):
    with open(file, "rb") as stream:
        data = stream.read()
    known = {
        1: ("wall_time", 1, same),
        2: ("step", 0, signed),
        3: ("file_version", 2, text),
        5: ("summary", 2, summary),
    }
    return [message(payload, known) for payload in records(data)]


def check_histogram(histo, values):
    limits, counts = histo["bucket_limit"], histo["bucket"]
    assert len(limits) == len(counts) > 0
    assert all(a < b for a, b in zip(limits, limits[1:])), limits
    mine, left = [], -math.inf
    for limit in limits:
        mine.append(sum(left <= one < limit for one in values))
        left = limit
    assert counts == mine, [(a, b, c) for a, b, c in zip(limits, counts, mine) if b != c]
    assert histo["num"] == sum(counts) == len(values)
    if not values:
        return
    assert counts[0] == 0, "the first bucket has no lower end"
    zeros = values.count(0)
    if zeros:
        # They have a bucket of their own.
        (at,) = [i for i in range(1, len(limits)) if limits[i - 1] <= 0 < limits[i]]
        assert counts[at] == zeros, (counts[at], zeros)
    assert (histo["min"], histo["max"]) == (min(values), max(values))
    assert math.isclose(histo["sum"], math.fsum(values), rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(histo["sum_squares"], math.fsum(one * one for one in values), rel_tol=1e-9)


def main():
    found = events(sys.argv[1])
    assert found[0]["file_version"] == "brain.Event:2" and abs(found[0]["wall_time"] - 1.7e9) < 1e9
    with open(sys.argv[2], encoding="utf-8") as stream:
        truth = [line.rstrip("\n").split("\t") for line in stream]
    assert len(found) - 1 == len(truth), (len(found), len(truth))
    for event, (kind, tag, step, time, *values) in zip(found[1:], truth):
        assert event["step"] == int(step) and event["wall_time"] == float.fromhex(time)
        (one,) = event["summary"]
        assert one["tag"] == tag
        assert one["metadata"] == {"plugin_data": {"plugin_name": kind + "s"}}
        values = [float.fromhex(number) for number in values]
        if kind == "histogram":
            check_histogram(one["histo"], values)
        else:
            (single,) = struct.unpack("<f", struct.pack("<f", values[0]))
            assert one["simple_value"] == single or (math.isnan(single) and math.isnan(one["simple_value"]))


if __name__ == "__main__":
    main()
