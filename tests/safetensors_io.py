"""Reading and writing safetensors files with the standard library alone.

A checkpoint in memory is a dict of Tensor by name. Values pass between types exactly: what a type cannot hold is an error here,
never rounded, because the tests compare bytes.
"""
import array
import json
import struct
import sys

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "U8": 1}
CODES = {"F64": "d", "I64": "q", "F32": "f", "I32": "i", "U32": "I", "U8": "B"}
assert sys.byteorder == "little" and array.array("f").itemsize == 4 and array.array("I").itemsize == 4


class Tensor:
    """dtype as safetensors spells it, shape (the last index is contiguous), data as bytes."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), bytes(data)

    def count(self):
        n = 1
        for size in self.shape:
            n *= size
        return n

    def values(self):
        """An array of the values: float32 for BF16 and F16, the own type otherwise."""
        if self.dtype == "BF16":
            wide = bytearray(2 * len(self.data))
            wide[2::4], wide[3::4] = self.data[0::2], self.data[1::2]
            return array.array("f", bytes(wide))
        if self.dtype == "F16":
            return array.array("f", struct.unpack(f"<{self.count()}e", self.data))
        return array.array(CODES[self.dtype], self.data)

    def to(self, dtype):
        """The same values in another float type; ValueError where it cannot hold one of them."""
        return self if dtype == self.dtype else tensor(dtype, self.shape, self.values())

    def part(self, first, n):
        """Entries [first, first + n) of the first axis."""
        row = len(self.data) // self.shape[0]
        return Tensor(self.dtype, [n] + self.shape[1:], self.data[first * row : (first + n) * row])


def tensor(dtype, shape, values):
    """From numbers that `dtype` holds exactly."""
    if dtype == "BF16":
        wide = array.array("f", values).tobytes()
        if any(wide[0::4]) or any(wide[1::4]):
            raise ValueError("not exact in BF16")
        data = bytearray(len(wide) // 2)
        data[0::2], data[1::2] = wide[2::4], wide[3::4]
    elif dtype == "F16":
        try:
            data = struct.pack(f"<{len(values)}e", *values)
        except OverflowError:
            raise ValueError("not exact in F16") from None
        if list(struct.unpack(f"<{len(values)}e", data)) != list(values):
            raise ValueError("not exact in F16")
    else:
        data = array.array(CODES[dtype], values).tobytes()
    return Tensor(dtype, shape, data)


def stack(tensors):
    """One tensor with a new first axis."""
    first = tensors[0]
    assert all(t.dtype == first.dtype and t.shape == first.shape for t in tensors)
    return Tensor(first.dtype, [len(tensors)] + first.shape, b"".join(t.data for t in tensors))


def header_of(tensors, metadata=None):
    """The header, JSON in bytes, with the data in the dict's order."""
    entries, at = {}, 0
    if metadata is not None:
        entries["__metadata__"] = metadata
    for name, t in tensors.items():
        entries[name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [at, at + len(t.data)]}
        at += len(t.data)
    return json.dumps(entries).encode()


def write_raw(path, header, data):
    """Any header before any data, true or not."""
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)


def write(path, tensors, metadata=None, align=8):
    header = header_of(tensors, metadata)
    header += b" " * (-len(header) % align)
    write_raw(path, header, b"".join(t.data for t in tensors.values()))


def read(path):
    """{name: Tensor} of one file."""
    with open(path, "rb") as f:
        raw = f.read()
    (n,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            tensors[name] = Tensor(entry["dtype"], entry["shape"], raw[8 + n + first : 8 + n + last])
    return tensors
