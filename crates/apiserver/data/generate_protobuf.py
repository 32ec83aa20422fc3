#!/usr/bin/env python3
"""Writes protobuf-numbers.json.gz from three Go modules and builtin-schemas.json.gz.

Usage: generate_protobuf.py API APIMACHINERY APIEXTENSIONS_APISERVER [OUTPUT]

For each definition of the schemas: its protobuf field numbers with their JSON names. What the fields hold is in the
schemas. Custom resource definitions are left out: their schemas have protobuf forms of their own.
"""

import gzip
import json
import pathlib
import sys

import gotypes


def main():
    here = pathlib.Path(__file__).resolve().parent
    types = gotypes.Types(*sys.argv[1:4])
    output = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else here / "protobuf-numbers.json.gz"
    definitions = json.loads(gzip.decompress((here / "builtin-schemas.json.gz").read_bytes()))["definitions"]
    messages = {
        name: types.numbers(name)
        for name, definition in definitions.items()
        if "properties" in definition and not name.startswith("io.k8s.apiextensions-apiserver.")
    }
    text = json.dumps(messages, sort_keys=True, separators=(",", ":"))
    output.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(messages)} messages, {len(text)} bytes, {output.stat().st_size} compressed")


if __name__ == "__main__":
    main()
