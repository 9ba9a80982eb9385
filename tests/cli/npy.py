"""Reads and writes .npy files with the standard library alone."""
import ast
import struct

FORMATS = {"<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "|u1": "B", "<u8": "Q", "|b1": "?",
           "<f2": "e"}


def write(path, dtype, shape, values):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    data = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def read(path):
    """(dtype, shape, values in row-major order)"""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    end = 10 + struct.unpack_from("<H", data, 8)[0]
    header = ast.literal_eval(data[10:end].decode())
    assert not header["fortran_order"]
    form = FORMATS[header["descr"]]
    count = (len(data) - end) // struct.calcsize(form)
    return header["descr"], header["shape"], list(struct.unpack_from(f"<{count}{form}", data, end))
