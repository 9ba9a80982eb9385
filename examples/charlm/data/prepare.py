#!/usr/bin/env python3
"""Writes pride_and_prejudice.txt.gz from Debian's package r-cran-janeaustenr.

    apt-get download r-cran-janeaustenr
    dpkg -x r-cran-janeaustenr_*.deb unpacked
    ./prepare.py unpacked/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb pride_and_prejudice.txt.gz
"""

import gzip
import re
import struct
import sys
import zlib


def chunks(database):
    """The objects of R's lazy-load database: a length and a zlib stream each."""
    while database:
        stream = zlib.decompressobj()
        yield stream.decompress(database[4:])
        database = stream.unused_data


def strings(serialized):
    """The elements of a character vector in R's serialization format 3 (XDR)."""
    encoding = struct.unpack(">I", serialized[14:18])[0]
    at = 18 + encoding
    kind, count = struct.unpack(">II", serialized[at : at + 8])
    assert kind & 255 == 16, "not a character vector"
    at += 8
    for _ in range(count):
        length = struct.unpack(">I", serialized[at + 4 : at + 8])[0]
        yield serialized[at + 8 : at + 8 + length].decode()
        at += 8 + length


def clean(lines):
    """One line for each paragraph; no title, no headings, plain ASCII."""
    text = "\n".join(lines)
    text = text[re.search(r"^Chapter 1$", text, re.MULTILINE).start() :]
    text = re.sub(r"^Chapter \d+$", "", text, flags=re.MULTILINE)
    text = re.sub(r"[_*]", "", text).replace("\u00e9", "e").replace("--", " - ")
    paragraphs = (re.sub(r"\s+", " ", p).strip() for p in re.split(r"\n\s*\n", text))
    return "".join(p + "\n" for p in paragraphs if p)


def main():
    source, target = sys.argv[1:]
    with open(source, "rb") as file:
        books = [list(strings(chunk)) for chunk in chunks(file.read())]
    book = next(b for b in books if b[0] == "PRIDE AND PREJUDICE")
    with open(target, "wb") as file:
        # No time and no name inside: the same bytes each time.
        with gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.write(clean(book).encode("ascii"))


main()
